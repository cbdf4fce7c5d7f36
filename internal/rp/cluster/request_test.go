package cluster

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest/kubetest"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

var newKey = kubetest.NewKey

// identity returns the id of the n-th identity in Azure.
func identity(n int) string { return fmt.Sprintf("aaaaaaaa-0000-0000-0000-%012d", n) }

// csr returns kubelet's request with a token.
func csr(name, tokenID, node string) *certificates.CertificateSigningRequest {
	return kubetest.CSR(name, tokenID, node, newKey(), TokenGroup, tokenGroup("here", factory))
}

// joining returns the request of the machine of a node with its token.
func (w *world) joining(name, node string) *certificates.CertificateSigningRequest {
	return csr(name, w.credential(factory+"/"+node).Value.TokenID, node)
}

// byIdentity returns kubelet's request with an identity in Azure.
func byIdentity(name, user, node string) *certificates.CertificateSigningRequest {
	c := csr(name, "", node)
	c.Spec.Username, c.Spec.Groups = user, []string{"system:authenticated"}
	return c
}

// removals is a delivery that counts removed configurations. Like Blobs, it does not count reads.
type removals struct {
	credential.Delivery
	n atomic.Int64
}

func (d *removals) Remove(ctx context.Context, key string) error {
	d.n.Add(1)
	return d.Delivery.Remove(ctx, key)
}

// The configuration of a URL is removed as soon as its token was used or its node's identity has
// joined, not when the credential ends, even if reads are not counted.
func TestAUsedConfigurationIsRemovedAtOnce(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		delivery := &removals{Delivery: w.credentials.Delivery}
		w.credentials.Delivery = delivery
		w.token("edge-1")
		w.put(factoryID, "edge-2", withIdentity(identity(1)))
		pass(time.Second)
		for _, r := range []*certificates.CertificateSigningRequest{
			w.joining("edge-1", "edge-1"), byIdentity("edge-2", identity(1), "edge-2"),
		} {
			before := delivery.n.Load()
			equal(t, "the request "+r.Name, c.Ask(r), "Approved")
			if got := w.credential(factory + "/" + r.Name).Value; got.State != store.Consumed ||
				delivery.n.Load() == before {
				t.Errorf("%s is still there: %s", r.Name, got.State)
			}
		}
	})
}

// Another approver approves the request (an auto-approver, an administrator, the provider before a
// restore): the token is used up in any case.
func TestApprovedBySomebodyElse(t *testing.T) {
	for name, node := range map[string]string{"its node": "edge-1", "another node": "edge-2"} {
		t.Run(name, func(t *testing.T) {
			inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
				id := w.token("edge-1")
				row, s := w.credential(factory+"/edge-1"), c.Secrets()[0]
				secret := string(s.Data["token-secret"])
				if s.Type != "bootstrap.kubernetes.io/token" || s.Name != "bootstrap-token-"+id ||
					string(s.Data["auth-extra-groups"]) != TokenGroup+","+tokenGroup("here", factory) ||
					string(s.Data["token-id"]) != id || len(secret) != 16 ||
					string(s.Data["expiration"]) != row.Value.Expires.UTC().Format(time.RFC3339) ||
					s.Labels[installationLabel] != "here" || s.Labels[clusterLabel] == "" ||
					s.Labels[credentialLabel] != flexnode.LastOf(row.Key) {
					t.Errorf("the Secret: %+v", s)
				}
				r := csr("foreign", id, node)
				r.Status.Conditions = []certificates.CertificateSigningRequestCondition{{
					Type: certificates.CertificateApproved, Status: corev1.ConditionTrue,
					Reason: "AutoApproved"}} // by another approver
				c.Ask(r)
				equal(t, "the state of the credential", w.credential(factory+"/edge-1").Value.State,
					store.Consumed)
				equal(t, "a second machine", c.Ask(csr("second", id, "edge-1")), "Denied")
				c.Issue("foreign", []byte("a certificate"))
				pass(credential.Grace + time.Second)
				equal(t, "Secrets that are left", strings.Join(c.secrets(), " "), "")
				if log := w.audit.String(); !strings.Contains(log, "approved by another approver") ||
					strings.Contains(log, secret) {
					t.Errorf("the audit log with the secret %s: %s", secret, log)
				}
			})
		})
	}
}

// Of two machines that request a certificate with one token at the same time, one gets it.
func TestTwoMachinesWithOneToken(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		id, key := w.token("edge-1"), w.node(factory+"/edge-1").Credential
		uses := func(write store.Write) bool { return write.Key == w.store.Credentials.Key(key) }
		w.memory.Before(func(call storetest.Call) error { // the other one is faster
			if !slices.ContainsFunc(call.Writes, uses) {
				return nil
			}
			w.memory.Before(nil)
			return w.credentials.Consume(context.Background(), key,
				credential.Application{KeyHash: "another", Name: "faster"}, store.Condition{})
		})
		equal(t, "the slower one", c.Ask(csr("slower", id, "edge-1")), "Denied")
		equal(t, "how often one was approved", w.counted(Approved), 0)
	})
}

// A certificate counts as that of the node's machine only if it was requested with the key that has
// used the token, and the token was not revoked since.
func TestWhoseCertificateItIs(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		c.PrependReactor("delete", "secrets", func(ktesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewInternalError(errDown) // a revoked token is still there
		})
		of := func(request, id, node string) (uid string) {
			r := csr(request, id, node)
			r.Status.Conditions = []certificates.CertificateSigningRequestCondition{{
				Type: certificates.CertificateApproved, Status: corev1.ConditionTrue,
				Reason: "AutoApproved"}} // by another approver
			c.Ask(r)
			if node == "edge-2" {
				key := w.node(factory + "/edge-2").Credential
				w.change(func(v *store.View) error { return w.credentials.Revoke(v, key, true) })
			}
			signed := c.sign(request)
			pass(time.Second)
			row := must(w.store.Certificates.Get(t.Context(), factory+"/"+node)).Value
			for _, o := range row.Seen {
				if o.ID == signed {
					return o.UID
				}
			}
			return "not seen"
		}
		first, second := w.token("edge-1"), w.token("edge-2")
		equal(t, "of the first key", of("first", first, "edge-1"), w.node(factory+"/edge-1").UID)
		equal(t, "of another key", of("another", first, "edge-1"), "")
		equal(t, "of a revoked token", of("revoked", second, "edge-2"), "")
	})
}

// A node's own identity gets the certificate of that node and of no other; requests of strangers
// are left to other approvers.
func TestIdentities(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.put(factoryID, "edge-1", withIdentity(identity(1)))
		w.put(factoryID, "edge-2", withIdentity(identity(2)))
		token := withIdentity(identity(3))
		token.KubernetesAuth.UseAzureAuth, token.ContinuousMonitoring = false, true
		w.put(factoryID, "edge-3", token)
		const client = "cccccccc-0000-0000-0000-000000000001"
		principal := withIdentity("")
		principal.AzureAuth.ManagedIdentity = &flexnode.ManagedIdentityAuth{ClientID: client}
		w.put(factoryID, "edge-4", principal)
		w.put(factoryID, "edge-5", principal)
		edit(w, w.store.Nodes, factory+"/edge-4", func(n *flexnode.Node) {
			n.Desired.AzureAuth = flexnode.AzureAuth{Method: api.ServicePrincipal,
				ServicePrincipal: &flexnode.ServicePrincipalAuth{ClientID: client,
					PrincipalID: identity(4)}}
		})
		edit(w, w.store.Nodes, factory+"/edge-5", func(n *flexnode.Node) { n.Principal = identity(5) })
		principal.AzureAuth = flexnode.AzureAuth{
			Method: api.Arc, Arc: &flexnode.ArcAuth{PrincipalID: identity(6)}}
		w.put(factoryID, "edge-6", principal)
		pass(time.Second)
		user := w.credential(factory + "/edge-3").Value.TokenID
		noToken := csr("user-called-as-a-token", user, "edge-3")
		noToken.Spec.Username = user
		masters := byIdentity("masters", identity(1), "edge-1")
		masters.Spec.Usages = append(masters.Spec.Usages, certificates.UsageServerAuth)
		for _, tt := range []struct {
			request *certificates.CertificateSigningRequest
			want    string
		}{
			{byIdentity("own", identity(1), "edge-1"), "Approved"},
			{byIdentity("own-again", identity(1), "edge-1"), "Approved"},
			{byIdentity("others", identity(1), "edge-2"), "Denied"},
			{byIdentity("unknown-node", identity(1), "edge-9"), "Denied"},
			{byIdentity("stranger", identity(9), "edge-1"), ""},
			{byIdentity("joins-by-token", identity(3), "edge-3"), ""},
			{byIdentity("nobody", "", "edge-1"), ""},
			{noToken, ""},
			{byIdentity("principal", identity(4), "edge-4"), "Approved"},
			{byIdentity("same-application", identity(4), "edge-5"), ""},
			{byIdentity("principal-that-was-seen", identity(5), "edge-5"), "Approved"},
			{byIdentity("arc", identity(6), "edge-6"), "Approved"},
			{masters, "Denied"},
		} {
			equal(t, tt.request.Name, c.Ask(tt.request), tt.want)
		}
	})
}

// No caller gets the certificate of a Node that is not a flex node, or is one of another
// installation of the provider, which is left alone; a machine that has joined can get another one.
func TestTheNameOfAnotherNode(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		for _, name := range []string{"our-pool-0", "edge-1"} {
			w.put(factoryID, name, flexnode.Desired{})
		}
		w.put(factoryID, "our-pool-1", withIdentity(identity(1)))
		w.want("edge-2", "a=b:NoSchedule")
		for _, name := range []string{"our-pool-0", "our-pool-1", "edge-1"} {
			c.joinWith(name, "", name == "edge-1")
		}
		elsewhere := flexNode("edge-2")
		elsewhere.Labels[installationLabel] = "another.example"
		c.add(elsewhere)
		pass(time.Minute)
		for name, want := range map[string]string{
			"our-pool-0": "Denied", "edge-1": "Approved", "edge-2": "Denied",
		} {
			equal(t, name, c.Ask(w.joining("of-"+name, name)), want)
		}
		equal(t, "by its identity", c.Ask(byIdentity("by-identity", identity(1), "our-pool-1")), "Denied")
		got := w.credential(factory + "/our-pool-0").Value
		if got.State != store.Live || !strings.Contains(got.Denied, "not a flex node of this provider") {
			t.Errorf("the credential: %+v", got)
		}
		equal(t, "the reason", w.ready(factory+"/edge-2").Reason, flexnode.NodeForeign)
		equal(t, "the taints of another installation's Node", c.taints("edge-2"), "")
	})
}

// The label of a Node, which its machine can change, hides no machine of ours, even one that says
// that it has left: its taints are set, and its successor joins.
func TestAMachineHidesItsNode(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.want("edge-1", "edge:NoSchedule")
		equal(t, "the first machine", c.Ask(w.joining("first", "edge-1")), "Approved")
		c.sign("first")
		c.joinTainted("edge-1", "edge:NoSchedule")
		edit(w, w.store.Certificates, factory+"/edge-1", func(c *flexnode.Certificates) {
			*c = c.Leave(w.node(factory + "/edge-1").UID)
		})
		for label, value := range map[string]string{
			managedLabel: "true", installationLabel: "another.example",
		} {
			c.edit("edge-1", func(n *corev1.Node) { n.Labels[label], n.Spec.Taints = value, nil })
			pass(time.Minute)
			equal(t, "its taints with "+label, c.taints("edge-1"), "edge:NoSchedule")
		}
		edit(w, w.store.Certificates, factory+"/edge-1", func(c *flexnode.Certificates) {
			*c = c.Revoke("", nil, time.Now(), 1)
		})
		w.want("edge-1", "edge:NoSchedule") // with another token
		equal(t, "its successor", c.Ask(w.joining("next", "edge-1")), "Approved")

		user := identity(1)
		w.put(factoryID, "edge-2", withIdentity(user))
		equal(t, "by its identity", c.Ask(byIdentity("identity", user, "edge-2")), "Approved")
		c.sign("identity")
		edit(w, w.store.Certificates, factory+"/edge-2", func(c *flexnode.Certificates) {
			*c = c.Revoke("", nil, time.Now(), 1)
		})
		c.joinWith("edge-2", "", false)
		equal(t, "its successor", c.Ask(byIdentity("another", user, "edge-2")), "Approved")
	})
}

// A request whose answer failed is answered soon, without a resync.
func TestARequestIsRetried(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.token("edge-1")
		failures := 0
		c.PrependReactor("update", "certificatesigningrequests",
			func(ktesting.Action) (bool, runtime.Object, error) {
				if failures == 3 {
					return false, nil, nil
				}
				failures++
				return true, nil, apierrors.NewInternalError(errDown)
			})
		if got := c.Ask(w.joining("first", "edge-1")); got != "Approved" || failures != 3 {
			t.Errorf("after %d failures and a second: %q", failures, got)
		}
	})
}

// Invalid requests are denied, for any signer.
func TestFlaws(t *testing.T) {
	key := newKey()
	type spoiled = *certificates.CertificateSigningRequest
	requests := func(name string, dns []string, groups ...string) func(spoiled) {
		return func(c spoiled) {
			c.Spec.Request = kubetest.Signed(x509.CertificateRequest{DNSNames: dns,
				Subject: pkix.Name{CommonName: name, Organization: groups}}, key)
		}
	}
	for what, spoil := range map[string]func(spoiled){
		"no request":  func(c spoiled) { c.Spec.Request = []byte("x") },
		"an admin":    requests("admin", nil, "system:masters"),
		"masters too": requests("system:node:n", nil, "system:nodes", "system:masters"),
		"no name":     requests("system:node:", nil, "system:nodes"),
		"other names": requests("system:node:n", []string{"x"}, "system:nodes"),
		"server usage": func(c spoiled) {
			c.Spec.Usages = append(c.Spec.Usages, certificates.UsageServerAuth)
		},
		"no client auth": func(c spoiled) { c.Spec.Usages = c.Spec.Usages[:1] },
	} {
		c := csr("x", "abcdef", "n")
		spoil(c)
		equal(t, what+": a flaw is found", readCSR(c).Flaw != "", true)
	}
	if a := readCSR(csr("x", "abcdef", "n")); a.Flaw != "" || a.Node != "n" || a.TokenID != "abcdef" {
		t.Errorf("a good one: %+v", a)
	}
}

// While the index is behind, the node's former machine gets no certificate, and its present one
// does.
func TestIdentitiesWhileTheIndexIsBehind(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		one, two := identity(1), identity(2)
		w.put(factoryID, "edge-1", withIdentity(one))
		pass(time.Second)
		w.memory.Before(func(call storetest.Call) error {
			if (call.Op == "changes" || call.Op == "follow") &&
				strings.Contains(call.Keys[0], "/i/") {
				return errors.New("broken")
			}
			return nil
		})
		defer w.memory.Before(nil)
		w.drop("edge-1")
		w.put(factoryID, "edge-1", withIdentity(two))
		equal(t, "the former machine", c.Ask(byIdentity("former", one, "edge-1")), "")
		equal(t, "the present machine", c.Ask(byIdentity("present", two, "edge-1")), "Approved")
	})
}
