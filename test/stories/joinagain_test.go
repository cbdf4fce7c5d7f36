package stories

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/health"
)

// A node whose certificate has expired, or is lost, joins again with a new bootstrap token.
func TestLostCertificate(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	dir := w.root + "/var/lib/kubelet/"
	if err := errors.Join(os.RemoveAll(dir+"pki"), os.Remove(dir+"kubeconfig")); err != nil {
		t.Fatal(err)
	}
	w.cluster.set(func() { w.cluster.token = "abcdef.fedcba9876543210" })
	if _, err := w.bootstrap(); err == nil || !strings.Contains(err.Error(), "bootstrap token") {
		t.Errorf("with the previous token: %v", err)
	}
	w.config = w.configuration()
	if _, err := w.bootstrap(); err != nil {
		t.Fatalf("with a new token: %v", err)
	}
	w.wholly(t, "joined again")
	if _, err := os.Stat(dir + "bootstrap-kubeconfig"); err == nil {
		t.Error("the new token is still on disk")
	}
}

// A join that was begun with a CA, and is begun again with another one, trusts only the latter.
func TestJoinForgetsCA(t *testing.T) {
	w := newWorld(t)
	w.cluster.newCA("api.example")
	former := w.cluster.pki()
	w.config = w.configuration()
	w.blow(60)
	if _, err := w.bootstrap(); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	w.blow(-1)
	w.cluster.newCA("api.example")
	w.config = w.configuration()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(w.read("/etc/kubernetes/certs/ca.crt"), former) {
		t.Error("kubelet trusts the CA of a join that never was")
	}
}

// Without its certificate, or its kubeconfig, kubelet works until its next start. The service finds
// and reports that before.
func TestFollowsReportsALostCertificate(t *testing.T) {
	for _, file := range []string{"pki/kubelet-client-current.pem", "kubeconfig"} {
		t.Run(file, func(t *testing.T) {
			followed(t, func(t *testing.T, s *serviceStory, _ string) {
				s.sleep(2 * time.Minute)
				if err := os.Remove(s.root + "/var/lib/kubelet/" + file); err != nil {
					t.Fatal(err)
				}
				s.until(10*time.Minute, "the report that it is lost", func() bool {
					c := s.reported(health.KubeletCertificate)
					return c.Status == "False" && c.Reason == "Unreadable"
				})
			})
		})
	}
}
