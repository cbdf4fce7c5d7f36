package stories

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/health"
)

// lostCertificate joins a machine and removes its kubelet's certificate and kubeconfig from the
// directory that it returns.
func lostCertificate(t *testing.T) (w *world, dir string) {
	t.Helper()
	w = newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	dir = w.root + "/var/lib/kubelet/"
	if err := errors.Join(os.RemoveAll(dir+"pki"), os.Remove(dir+"kubeconfig")); err != nil {
		t.Fatal(err)
	}
	return w, dir
}

// A node whose certificate has expired, or is lost, joins again with a new bootstrap token.
func TestLostCertificate(t *testing.T) {
	w, dir := lostCertificate(t)
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

// Such a node also joins again by a change that drains, which it cannot do before.
func TestLostCertificateAndAnotherMinorVersion(t *testing.T) {
	w, dir := lostCertificate(t)
	w.cluster.run("web")
	w.cluster.set(func() {
		w.cluster.token = "abcdef.fedcba9876543210"
		w.cluster.ill = func(r *http.Request) int {
			_, err := os.Stat(dir + "pki/kubelet-client-current.pem")
			if err != nil && r.Header.Get("Authorization") == "" {
				return http.StatusUnauthorized
			}
			return 0
		}
	})
	w.upgrade()
	if _, err := w.bootstrap(); err != nil || w.kubeletVersion() != "v1.35.4" || w.cordoned() {
		t.Errorf("%v; kubelet is %s, cordoned %t", err, w.kubeletVersion(), w.cordoned())
	}
	if log := w.log.String(); len(w.cluster.evicted) > 0 || !strings.Contains(log, "not drained") {
		t.Errorf("evicted are %v; the log:\n%s", w.cluster.evicted, log)
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

// Such a node also joins again if the cluster has got a new CA meanwhile, although its token may
// not read the cluster's uid, and whenever it is interrupted. Then it knows the cluster's uid.
func TestLostCertificateAndAnotherCA(t *testing.T) {
	t.Parallel()
	const madeAgain = "00000000-0000-0000-0000-00000000c2c2"
	for name, tt := range map[string]struct {
		status, kill int // the API server's answer about the uid, and the write after which it ends
		uid          string
		says         string
	}{
		"readable":              {},
		"forbidden":             {status: 403},
		"made again":            {status: 403, uid: madeAgain},
		"made again and killed": {status: 403, uid: madeAgain, kill: 36},
		"overloaded":            {status: 429, says: "cannot check whether"},
		"killed in apply":       {status: 403, kill: 45},
		"killed in commit":      {status: 403, kill: 54},
		"killed at the end":     {status: 403, kill: 60},
		"readable and killed":   {kill: 57},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := lostCertificate(t)
			former := w.cluster.pki()
			w.cluster.adopt(w.cluster.authority())
			w.cluster.set(func() {
				w.cluster.token = "abcdef.fedcba9876543210"
				w.cluster.uid = cmp.Or(tt.uid, w.cluster.uid)
				w.cluster.ill = func(r *http.Request) int {
					if r.Header.Get("Authorization") != "" &&
						strings.HasSuffix(r.URL.Path, "/services/kubernetes") {
						return tt.status
					}
					return 0
				}
			})
			w.config = w.configuration()
			if tt.kill > 0 {
				w.blow(tt.kill)
				if _, err := w.bootstrap(); !errors.Is(err, errKilled) {
					t.Fatalf("the error is %v; want a run that was killed", err)
				}
				w.blow(-1)
			}
			if _, err := w.bootstrap(); err != nil || tt.says != "" {
				if tt.says == "" || !strings.Contains(fmt.Sprint(err), tt.says) {
					t.Errorf("the error is %v, want %q", err, tt.says)
				}
				return
			}
			w.follows(former)
			former = w.cluster.pki()
			w.cluster.adopt(w.cluster.authority())
			w.config = w.configuration()
			if _, err := w.bootstrap(); err != nil {
				t.Fatalf("with the next CA: %v", err)
			}
			w.follows(former)
		})
	}
}
