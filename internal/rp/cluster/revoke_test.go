package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ktesting "k8s.io/client-go/testing"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/machinekey/machinekeytest"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const (
	certificateLife = 2 * time.Hour
	newer           = "X509SHA256=newer" // a certificate that the store does not know
)

// sign issues the certificate of an approved request, and returns its id.
func (c *fakeCluster) sign(name string) string {
	key := newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotAfter: time.Now().Add(certificateLife),
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	c.Issue(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return flexnode.CertificateID(der)
}

// renewal returns kubelet's request to renew a certificate.
func renewal(name, node, id string) *certificates.CertificateSigningRequest {
	c := csr(name, "", node)
	c.Spec.Username = "system:node:" + node
	c.Spec.Groups = []string{"system:nodes", "system:authenticated"}
	c.Spec.Extra = map[string]certificates.ExtraValue{credentialKey: {id}}
	return c
}

// revoked returns the ConfigMap, as "name=ids;".
func (c *fakeCluster) revoked() string {
	is := must(c.CoreV1().ConfigMaps("kube-system").
		Get(context.Background(), revokedName, metav1.GetOptions{}))
	var text strings.Builder
	for _, name := range []string{"edge-1", "edge-2", "other"} {
		if ids, there := is.Data[name]; there {
			text.WriteString(name + "=" + ids + ";")
		}
	}
	return text.String()
}

// setRevoked changes the ConfigMap like another client.
func (c *fakeCluster) setRevoked(name, ids string) {
	client := c.CoreV1().ConfigMaps("kube-system")
	is := must(client.Get(context.Background(), revokedName, metav1.GetOptions{}))
	if is.Data == nil {
		is.Data = map[string]string{}
	}
	is.Data[name] = ids
	must(client.Update(context.Background(), is, metav1.UpdateOptions{}))
}

// join joins a machine with the token of a node, and returns the id of its certificate.
func (w *world) join(c *fakeCluster, node, request string) string {
	w.t.Helper()
	equal(w.t, "the request of "+node, c.Ask(csr(request, w.token(node), node)), "Approved")
	return c.sign(request)
}

// remove deletes a node, whose machine may write for some time.
func (w *world) remove(node string, after time.Duration) {
	w.change(func(v *store.View) error {
		key := factory + "/" + node
		must(0, w.credentials.RemoveNode(v, key, true, time.Now()))
		row := must(w.store.Certificates.In(v, key)).Value
		return w.store.Certificates.Put(v, key,
			row.Revoke("", nil, time.Now().Add(after), w.store.Epoch(v)))
	})
	pass(time.Second)
}

// The certificate of a deleted node may not write, at once or after its time, and is not renewed.
// That of its successor may, and the provider renews it. Nothing is left once the old one has
// expired.
func TestADeletedMachineMayNotWrite(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		c.setRevoked("other", "theirs")
		old := w.join(c, "edge-1", "of-old")
		late := w.join(c, "edge-2", "of-late")
		equal(t, "a renewal, which others approve", c.Ask(renewal("usual", "edge-1", old)), "")
		w.remove("edge-1", 0)
		w.remove("edge-2", flexnode.LeaveTime)
		equal(t, "after the deletions", c.revoked(), "edge-1=;other=theirs;")
		equal(t, "a renewal of the deleted node", c.Ask(renewal("of-deleted", "edge-1", old)),
			"Denied")
		equal(t, "a renewal of the node that is leaving",
			c.Ask(renewal("of-leaving", "edge-2", late)), "")
		pass(flexnode.LeaveTime)
		equal(t, "after the time to leave", c.revoked(), "edge-1=;edge-2=;other=theirs;")

		next := w.join(c, "edge-1", "of-next")
		equal(t, "with a successor", c.revoked(), "edge-1="+next+";edge-2=;other=theirs;")
		equal(t, "a renewal of the successor", c.Ask(renewal("renewed", "edge-1", next)), "Approved")
		flawed := renewal("flawed", "edge-1", next)
		flawed.Spec.Usages = append(flawed.Spec.Usages, certificates.UsageServerAuth)
		equal(t, "one with other usages", c.Ask(flawed), "Denied")
		equal(t, "a renewal of the deleted node, with a successor",
			c.Ask(renewal("again", "edge-1", old)), "Denied")
		foreign := renewal("foreign", "edge-2", next)
		foreign.Spec.Username = "system:node:edge-1"
		equal(t, "a renewal for another name", c.Ask(foreign), "Denied")
		renewed := c.sign("renewed")
		got := c.revoked()
		if !strings.Contains(got, next) || !strings.Contains(got, renewed) || strings.Contains(got, old) {
			t.Errorf("with a renewed successor: %s", got)
		}
		pass(certificateLife)
		equal(t, "when the old ones have ended", c.revoked(), "other=theirs;")
	})
}

// A successor can write while the provider is away for an hour, since its certificate stays listed.
// Renewals of that hour wait; the previous machine's is denied afterwards.
func TestSuccessorWithoutTheProvider(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		old := w.join(c, "edge-1", "of-old")
		w.remove("edge-1", 0)
		next := w.join(c, "edge-1", "of-next")
		w.disown(factory)
		c.File(renewal("renewed", "edge-1", next))
		c.File(renewal("of-deleted", "edge-1", old))
		for range 60 {
			pass(time.Minute)
			equal(t, "without the provider", c.revoked(), "edge-1="+next+";")
		}
		equal(t, "without the provider", c.Answer("renewed")+c.Answer("of-deleted"), "")
		w.own(factory)
		pass(time.Minute)
		equal(t, "when it is back", c.Answer("renewed")+c.Answer("of-deleted"), "ApprovedDenied")
		renewed := c.sign("renewed")
		if got := c.revoked(); !strings.Contains(got, next) || !strings.Contains(got, renewed) {
			t.Errorf("then %s", got)
		}
	})
}

// A list in a cluster that was unreachable, or that another client has changed, is written again.
// Ids that the provider does not know are removed, unless its store was restored since: it may lack
// certificates that were listed after the backup.
func TestRevocationsAreWrittenAgain(t *testing.T) {
	const key = factory + "/edge-1"
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		old := w.join(c, "edge-1", "of-old")
		c.Down.Store(true)
		w.remove("edge-1", 0)
		pass(time.Minute)
		c.Down.Store(false)
		pass(time.Minute)
		equal(t, "after the cluster was out of reach", c.revoked(), "edge-1=;")
		c.setRevoked("edge-1", "X509SHA256=forgotten "+old)
		pass(probeInterval + time.Minute)
		equal(t, "after the list was changed", c.revoked(), "edge-1=;")
		w.restore()
		c.setRevoked("edge-1", "X509SHA256=newer "+old)
		pass(probeInterval + time.Minute)
		equal(t, "after a restore", c.revoked(), "edge-1=X509SHA256=newer;")
		present := func(o flexnode.Certificate) bool { return o.UID == w.node(key).UID }
		edit(w, w.store.Certificates, key, func(c *flexnode.Certificates) {
			*c = c.Revoke("gone", present, time.Now(), 2) // a machine of a deleted node leaves
		})
		pass(time.Second)
		equal(t, "after a former machine has left", c.revoked(), "edge-1=X509SHA256=newer;")
		equal(t, "a renewal", c.Ask(renewal("renewed", "edge-1", "X509SHA256=newer")), "Approved")
	})
}

// After a restore, certificates that the cluster has listed since the backup may write and are
// renewed, and others of their names may not. A machine can join as a node that was deleted then.
func TestRevocationsSinceTheBackup(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		old := w.join(c, "edge-1", "of-old")
		w.join(c, "edge-2", "of-deleted")
		usual := w.join(c, "edge-3", "of-usual")
		w.restore()
		reads := 0
		c.PrependReactor("get", "configmaps", func(ktesting.Action) (bool, runtime.Object, error) {
			reads++
			return false, nil, nil
		})
		for _, name := range []string{"first", "second"} {
			equal(t, "its "+name+" renewal", c.Ask(renewal(name, "edge-3", usual)), "")
		}
		equal(t, "reads of the list for a node that it does not have", reads, 1)
		c.setRevoked("edge-1", newer)
		c.setRevoked("edge-2", "")
		equal(t, "a renewal of the previous machine", c.Ask(renewal("replaced", "edge-1", old)),
			"Denied")
		equal(t, "a renewal of the listed one", c.Ask(renewal("renewed", "edge-1", newer)), "Approved")
		next, joined := c.sign("renewed"), w.join(c, "edge-2", "of-next")
		equal(t, "in the end", c.revoked(), "edge-1="+next+" "+newer+";edge-2="+joined+";")
		w.remove("edge-1", 0)
		equal(t, "after a deletion", c.revoked(), "edge-1=;edge-2="+joined+";")
		equal(t, "a renewal of the deleted node", c.Ask(renewal("again", "edge-1", next)), "Denied")
	})
}

// After a restore, the key in the backup may be of a machine that was shut out since: a bootstrap
// token that it gets by that key gives no certificate that may write, whatever the cluster lists,
// until an enrolment secret or kubelet has proved the key again.
func TestShutOutSinceTheBackup(t *testing.T) {
	for name, tt := range map[string]struct {
		proved, renewed bool
		is              string
	}{
		"replaced": {is: newer}, "deleted": {}, "not shut out": {renewed: true},
		"proved": {proved: true},
	} {
		t.Run(name, func(t *testing.T) {
			inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
				const key = factory + "/edge-1"
				old := w.join(c, "edge-1", "of-old")
				proves := func(epoch int64) {
					edit(w, w.store.Nodes, key, func(n *flexnode.Node) {
						*n = n.Proved("its-key", "boot", epoch, time.Now())
					})
				}
				proves(1)
				w.restore()
				if tt.proved {
					proves(2)
				}
				listed := tt.is
				if tt.renewed {
					listed = old
				}
				c.setRevoked("edge-1", listed)
				for _, request := range []string{"first", "second"} {
					must(w.credentials.Refresh(t.Context(), must(w.store.Nodes.Get(t.Context(), key)),
						api.Refresh{}, func(string) bool { return true }))
					token := w.credential(key).Value.TokenID
					equal(t, "its "+request+" request", c.Ask(csr(request, token, "edge-1")), "Approved")
					id := c.sign(request)
					if got := strings.Contains(c.revoked(), id); got != (tt.proved || tt.renewed) {
						t.Errorf("its certificate may write: %v", got)
					}
				}
				got := c.revoked()
				if !strings.Contains(got, listed) || strings.Contains(got, old) != tt.renewed {
					t.Errorf("in the end %s", got)
				}
			})
		})
	}
}

// Revocations and removals go on while the cluster refuses a larger ConfigMap; the rest follows
// when there is room. The owner is warned before it is full.
func TestRevocationsInAFullConfigMap(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		const warning = "is nearly full"
		w.warns("an empty one", warning, false)
		const limit = 1 << 20
		var more atomic.Bool
		type object = runtime.Object
		c.PrependReactor("patch", "configmaps", func(a ktesting.Action) (bool, object, error) {
			is := must(c.Tracker().Get(a.GetResource(), "kube-system", revokedName))
			patched := is.(*corev1.ConfigMap).DeepCopy()
			must(0, json.Unmarshal(a.(ktesting.PatchAction).GetPatch(), patched))
			size := 0
			for _, ids := range patched.Data { // null becomes ""
				size += len(ids)
			}
			if size > limit && !more.Load() {
				return true, nil, apierrors.NewInvalid(schema.GroupKind{}, revokedName, nil)
			}
			return false, nil, nil
		})
		old := w.join(c, "edge-1", "of-old")
		w.join(c, "edge-2", "of-late")
		w.remove("edge-1", 0)
		next := w.join(c, "edge-1", "of-next")
		c.setRevoked("other", strings.Repeat("x", limit-2*len(next)))
		equal(t, "a renewal of the successor", c.Ask(renewal("renewed", "edge-1", next)), "Approved")
		renewed := c.sign("renewed")
		w.remove("edge-2", 0)
		other := must(c.CoreV1().ConfigMaps("kube-system").
			Get(context.Background(), revokedName, metav1.GetOptions{})).Data["other"]
		equal(t, "when it is full", c.revoked(), "edge-1="+next+";edge-2=;other="+other+";")
		pass(probeInterval)
		w.warns("a full one", warning, true)
		more.Store(true)
		pass(time.Minute)
		if got := c.revoked(); !strings.Contains(got, renewed) || strings.Contains(got, old) {
			t.Errorf("with room: %.300s", got)
		}
		pass(certificateLife)
		equal(t, "when the old ones have ended", c.revoked(), "other="+other+";")
	})
}

// The identity of a machine that was shut out gets no certificate.
func TestIdentityIsShutOut(t *testing.T) {
	n := flexnode.Node{Principal: "p", Identity: "oid:t/o"}
	n.Desired.KubernetesAuth.UseAzureAuth = true
	for _, user := range []string{"p", "o"} {
		equal(t, user, isNode(n, user), true)
		out := n
		out.MachineKey = flexnode.ShutOut
		equal(t, user+" that is shut out", isNode(out, user), false)
	}
}

// A cluster that cannot refuse the writes of a certificate is left unchanged, with a warning.
func TestClustersThatCannotRevoke(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.warns("a cluster that can", "deleted node", false)
		old := "v1.31.9"
		c.Version.Store(&old)
		w.join(c, "edge-1", "of-old")
		pass(probeInterval)
		w.remove("edge-1", 0)
		pass(probeInterval)
		w.warns("before Kubernetes 1.32", "1.32", true)
		equal(t, "what is revoked", c.revoked(), "")
		newer := "v1.32.0"
		c.Version.Store(&newer)
		must(0, c.CoreV1().ConfigMaps("kube-system").
			Delete(context.Background(), revokedName, metav1.DeleteOptions{}))
		pass(probeInterval + time.Minute)
		w.warns("without the ConfigMap", "flexnode-revoked", true)
	})
}

// The Node of a leaving machine is deleted, but not that of a successor or of no flex node.
func TestNodesOfMachinesThatLeave(t *testing.T) {
	for _, tt := range []struct {
		name            string
		deleted, ofAKS  bool
		successor, gone bool
	}{
		{name: "a live node", gone: true},
		{name: "a deleted node", deleted: true, gone: true},
		{name: "a successor", deleted: true, successor: true},
		{name: "no flex node", deleted: true, ofAKS: true},
	} {
		inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
			w.join(c, "edge-1", "of-old")
			uid := w.node(factory + "/edge-1").UID
			c.joinWith("edge-1", "", !tt.ofAKS)
			if tt.deleted {
				w.remove("edge-1", 0)
			}
			if tt.successor {
				w.put(factoryID, "edge-1", flexnode.Desired{})
			}
			edit(w, w.store.Certificates, factory+"/edge-1", func(c *flexnode.Certificates) {
				c.Leaving = uid
			})
			pass(time.Second)
			_, err := c.CoreV1().Nodes().Get(t.Context(), "edge-1", metav1.GetOptions{})
			equal(t, tt.name+": the Node is gone", apierrors.IsNotFound(err), tt.gone)
			left := must(w.store.Certificates.Get(t.Context(), factory+"/edge-1"))
			equal(t, tt.name+": who leaves", left.Value.Leaving, "")
		})
	}
}

func TestProvesKubelet(t *testing.T) {
	ca, other := machinekeytest.NewCA(), machinekeytest.NewCA()
	_, leaf := ca.Kubelet("n", false)
	_, neighbour := ca.Kubelet("o", false)
	_, foreign := other.Kubelet("n", false)
	_, again := ca.Kubelet("n", false)
	const autoApproved = "AutoApproved"
	for name, tt := range map[string]struct {
		leaf, requested *x509.Certificate
		reason, why     string
		listed          string // "" lists the certificate
	}{
		"the node's":          {leaf, leaf, approvedReason, "", ""},
		"another node's":      {neighbour, neighbour, approvedReason, "not of the node", ""},
		"of another CA":       {foreign, foreign, approvedReason, "unknown authority", ""},
		"approved by another": {leaf, leaf, autoApproved, "knows no request", ""},
		"without a request":   {again, leaf, approvedReason, "knows no request", ""},
		"revoked":             {leaf, leaf, approvedReason, "refuses writes", newer},
	} {
		t.Run(name, func(t *testing.T) {
			c := newFakeCluster("factory")
			r := csr("csr", "", "")
			r.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
				Bytes: tt.requested.Raw})
			r.Status.Conditions = []certificates.CertificateSigningRequestCondition{
				{Type: certificates.CertificateApproved, Reason: tt.reason}}
			c.File(r)
			c.setRevoked("n", cmp.Or(tt.listed, flexnode.CertificateID(tt.leaf.Raw)))
			must(0, c.Tracker().Add(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: clientCA, Namespace: "kube-system"},
				Data:       map[string]string{clientCAFile: string(ca.PEM())},
			}))
			source := &fakeSource{clusters: map[string]*fakeCluster{factory: c}}
			m := &Manager{Source: source, Dial: source.dial}
			err := m.ProvesKubelet(t.Context(), flexnode.Cluster{ID: factoryID}, "n", tt.leaf)
			if (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) {
				t.Errorf("got %v", err)
			}
		})
	}
}
