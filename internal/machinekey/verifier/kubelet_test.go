package verifier

import (
	"testing"

	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/machinekey/machinekeytest"
)

func TestSignAsKubelet(t *testing.T) {
	ca := machinekeytest.NewCA()
	for name, rsa := range map[string]bool{"ECDSA": false, "RSA": true} {
		pair, leaf := ca.Kubelet("n", rsa)
		statement := machinekey.Statement("uid", "thumbprint")
		certificate, signature, err := machinekey.SignAsKubelet(pair, statement)
		if err != nil {
			t.Fatal(err)
		}
		got, err := SignedByKubelet(certificate, signature, statement)
		if err != nil || !got.Equal(leaf) {
			t.Errorf("%s: %v", name, err)
		}
		for what, other := range map[string][]byte{
			"node": machinekey.Statement("other", "thumbprint"), "key": machinekey.Statement("uid", "other"),
		} {
			if _, err := SignedByKubelet(certificate, signature, other); err == nil {
				t.Errorf("%s: it is good for another %s", name, what)
			}
		}
		_, other := ca.Kubelet("n", rsa)
		if _, err := SignedByKubelet(other.Raw, signature, statement); err == nil {
			t.Errorf("%s: it is good for another certificate", name)
		}
	}
	if _, err := SignedByKubelet([]byte("x"), nil, nil); err == nil {
		t.Error("a certificate that is none")
	}
	if _, _, err := machinekey.SignAsKubelet([]byte("x"), nil); err == nil {
		t.Error("a pair that is none")
	}
}
