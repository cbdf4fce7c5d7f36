package health

import (
	"errors"
	"testing"
	"time"
)

func TestServingCertificate(t *testing.T) {
	issued := func(until time.Time, err error) Evidence {
		return with(func(e *Evidence) {
			e.Wanted.Node.Kubelet.ServerTLSBootstrap = true
			e.Serving = Answered(Validity{From: ago(19 * time.Hour), To: until}, err)
		})
	}
	check(t, "ServingCertificate", []expect{
		{"kubelet signs it itself", good(), True, "", "", ""},
		{"it is there", issued(now().Add(time.Hour), nil), True, "", "", ""},
		{"it ends soon", issued(now().Add(59*time.Minute), nil), False, "NotRenewed", OwnerCluster,
			"ends in 0 hours"},
		{"it is not", issued(time.Time{}, nil), False, "Pending", OwnerCluster,
			"logs and exec do not work"},
		{"it is over", issued(ago(time.Hour), nil), False, "Pending", OwnerCluster,
			"certificate approve"},
		{"it cannot be read", issued(time.Time{}, errors.New("x")), Unknown, "NotAnswered", "", "x"},
		{"not examined", with(func(e *Evidence) {
			e.Wanted.Node.Kubelet.ServerTLSBootstrap = true
		}), Unknown,
			"NotChecked", "", ""},
	})
}
