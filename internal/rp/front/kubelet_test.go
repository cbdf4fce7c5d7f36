package front

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/machinekey/machinekeytest"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// kubelets knows the certificate of one node.
type kubelets struct {
	node string
	leaf *x509.Certificate
}

func (k kubelets) ProvesKubelet(
	_ context.Context, c flexnode.Cluster, node string, leaf *x509.Certificate,
) error {
	if c.ID == "" || node != k.node || !leaf.Equal(k.leaf) {
		return errors.New("it is of another")
	}
	return nil
}

// registersAsKubelet has a machine register its key with a used secret, vouched for by a kubelet.
func (m *machine) registersAsKubelet(t *testing.T, status int, secret string, pair []byte) {
	t.Helper()
	certificate, signature, err := machinekey.SignAsKubelet(pair,
		machinekey.Statement(m.said.UID, m.key.Thumbprint()))
	if err != nil {
		t.Fatal(err)
	}
	body := must(json.Marshal(api.RegisterKey{EnrolmentSecret: secret,
		Kubelet: &api.KubeletProof{Certificate: certificate, Signature: signature}}))
	m.post(t, status, "/registerKey", string(body))
	m.w.caughtUp()
}

// A provider that was restored from a backup knows no key, or a former one: kubelet vouches for the
// machine that has registered since. Before a restore it does not.
func TestRestoredProvider(t *testing.T) {
	ca := machinekeytest.NewCA()
	pair, leaf := ca.Kubelet("n", false)
	stranger, _ := ca.Kubelet("n", false)
	for name, known := range map[string]bool{"no key": false, "a former key": true} {
		t.Run(name, func(t *testing.T) {
			w, m := newMachine(t)
			if known {
				w.machineOf("n").registers(t, 204, w.enrolment(t, "n"))
			}
			w.api.Kubelets = kubelets{"n", leaf}
			m.registersAsKubelet(t, 401, "used.secret", pair)
			must(w.api.Store.Update(t.Context(), "", nil, func(v *store.View) error {
				_, err := w.api.Store.RaiseEpoch(v)
				return err
			}))
			m.registersAsKubelet(t, 401, "used.secret", stranger)
			m.poll(t, 401)
			m.registersAsKubelet(t, 204, "used.secret", pair)
			m.poll(t, 200)
			audit := w.audit.String()
			for _, line := range []string{"is not proved by its kubelet", "is proved by its kubelet"} {
				if !strings.Contains(audit, line) {
					t.Errorf("the audit log does not say %q", line)
				}
			}
			other := w.machineOf("n")
			w.api.Kubelets = nil // a front that reaches no cluster
			other.registersAsKubelet(t, 401, "used.secret", pair)
			m.poll(t, 200)
		})
	}
}
