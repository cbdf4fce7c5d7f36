package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ktesting "k8s.io/client-go/testing"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// secret puts a Secret of a bootstrap token in the cluster, an hour old.
func (c *fakeCluster) secret(id string, labels map[string]string) {
	must(c.CoreV1().Secrets("kube-system").Create(context.Background(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id, Namespace: "kube-system",
			Labels: labels, CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour))},
	}, metav1.CreateOptions{}))
}

// Two installations of the provider, and the operator, share an API server: each leaves the others'
// Secrets and requests alone.
func TestOthersAreLeftAlone(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		marks := w.manager.working[factory].marks()
		foreign, other := maps.Clone(marks), maps.Clone(marks)
		foreign[installationLabel] = "elsewhere"
		c.secret("foreig", foreign)
		other[clusterLabel] = "another"
		c.secret("other0", other)
		c.secret("before", map[string]string{providerLabel: providerName})
		c.secret("person", nil)
		pass(10 * time.Minute)
		want := "bootstrap-token-before bootstrap-token-foreig bootstrap-token-other0 " +
			"bootstrap-token-person"
		equal(t, "left", strings.Join(c.secrets(), " "), want)
		for _, id := range []string{"foreig", "other0", "person"} {
			foreign := csr("of-"+id, id, "edge-1")
			foreign.Spec.Groups[2] = tokenGroup("elsewhere", factory)
			equal(t, "a request with the token "+id, c.Ask(foreign), "")
		}
	})
}

// Another owner's token has the id that was drawn: it is left alone, and the provider draws
// another.
func TestTokenIDIsTaken(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		c.Down.Store(true)
		pass(healthInterval)
		w.put(factoryID, "edge-1", flexnode.Desired{})
		id := w.credential(factory + "/edge-1").Value.TokenID
		c.Down.Store(false)
		c.secret(id, nil)
		pass(time.Minute)
		if got := w.credential(factory + "/edge-1").Value; got.State != store.Live ||
			got.TokenID == id {
			t.Errorf("%+v", got)
		}
		w.drop("edge-1")
		pass(time.Second)
		equal(t, "left", strings.Join(c.secrets(), " "), "bootstrap-token-"+id)
	})
}

// A node whose credential expired before its cluster was ever reached is Failed; it is rendered
// when the cluster answers. One that cannot be rendered is tried once, and again when the cluster
// has another version. New facts reach both, with or without a credential.
func TestFailedNodesAreRendered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newWorld(t), newFakeCluster("factory")
		c.Down.Store(true)
		w.register(factoryID, c)
		w.own(factory)
		w.put(factoryID, "late", flexnode.Desired{})
		w.put(factoryID, "new", flexnode.Desired{Versions: flexnode.Versions{Kubernetes: "1.36.0"}})
		pass(credential.Lifetime + time.Minute)
		check := func(when, name string, state string, rendered, tells bool) {
			t.Helper()
			n := w.node(factory + name)
			if n.State != state || n.Revision != 0 != rendered || n.Reason != "" != tells {
				t.Errorf("%s %s is %q: %+v", when, name, n.State, n)
			}
		}
		check("before it answers", "/late", api.Failed, false, true)
		c.Down.Store(false)
		pass(10 * time.Minute)
		check("afterwards", "/late", "", true, false)
		check("afterwards", "/new", api.Failed, false, true)
		facts := w.cluster(factory).Facts
		equal(t, "the facts of /new", w.node(factory+"/new").Facts, facts)
		equal(t, "those that are tried again", len(w.index.Stale(factory, facts, 10)), 0)
		version := "v1.36.0"
		c.Version.Store(&version)
		pass(2 * probeInterval)
		check("after the upgrade", "/new", "", true, false)
		edit(w, w.store.Nodes, factory+"/late", func(n *flexnode.Node) {
			n.State, n.Reason = api.Failed, "its credential was revoked"
		})
		w.moveAPIServer("https://moved.example/")
		for _, name := range []string{"/late", "/new"} {
			equal(t, "the facts of "+name, w.node(factory+name).Facts, w.cluster(factory).Facts)
		}
	})
}

// moveAPIServer gives the factory's nodes another address of the API server.
func (w *world) moveAPIServer(url string) {
	edit(w, w.store.Clusters, factory, func(c *flexnode.Cluster) {
		c.Properties.ServerURL, c.Version = url, url
	})
	pass(5 * time.Second)
}

// New facts of a cluster reach all its nodes in a new version, in which only that layer is
// replaced, and also the configurations that wait for machines.
func TestNewFactsAreANewVersion(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, _ *fakeCluster) {
		const nodes = 120 // more than two batches
		for i := range nodes {
			w.put(factoryID, "edge-"+string(rune('a'+i%26))+string(rune('a'+i/26)), flexnode.Desired{})
		}
		pass(time.Second)
		before := w.node(factory + "/edge-aa")
		w.moveAPIServer("https://moved.example/")
		facts := w.cluster(factory).Facts
		rows, _, err := w.store.Nodes.List(context.Background(), factory+"/")
		if err != nil || len(rows) != nodes {
			t.Fatalf("%d nodes, %v", len(rows), err)
		}
		for _, r := range rows {
			if r.Value.Facts != facts {
				t.Fatalf("%s was not rendered again", r.Key)
			}
		}
		after := w.node(factory + "/edge-aa")
		if after.Revision <= before.Revision || after.Assigned != after.Revision {
			t.Errorf("from %d to %d, assigned %d", before.Revision, after.Revision, after.Assigned)
		}
		history := must(w.store.History.Get(context.Background(), factory+"/edge-aa")).Value
		was := must(history.Find(before.Revision))
		is := must(history.Find(after.Revision))
		if is.Why != "facts" || string(is.Own) != string(was.Own) || is.Facts == was.Facts {
			t.Errorf("the revision %+v after %+v", is, was)
		}
		layer := string(must(w.store.Layers.Get(context.Background(), facts)).Value)
		for _, fact := range []string{`"serverURL":"https://moved.example"`,
			`"tenantId":"` + tenant + `"`, `"dnsServiceIP":"10.96.0.10"`} {
			if !strings.Contains(layer, fact) {
				t.Errorf("%s is not among the facts %s", fact, layer)
			}
		}
		equal(t, "what the URL hands out", w.credential(factory+"/edge-aa").Value.Config, after.Assigned)
	})
}

// Work in a session that was refused meanwhile does not get the data of another session.
func TestARefusedSessionIsNotUsedAgain(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, _ *fakeCluster) {
		worker := w.manager.working[factory]
		before := must(worker.use())
		w.register(harbourID, newFakeCluster("harbour"))
		give := func(key string) {
			w.change(func(v *store.View) error {
				return w.store.APIServers.Put(v, serverOf("factory"), key)
			})
			store.Signal(worker.again)
			pass(2 * sourceInterval)
		}
		give(harbour)
		if _, err := worker.use(); err == nil {
			t.Fatal("it was not refused")
		}
		give(factory)
		if after := must(worker.use()); after == before || after.nodes == before.nodes {
			t.Error("it is the same session again")
		}
	})
}

// A cluster that approves requests with the provider's tokens itself, or whose kubelets may delete
// Nodes, has a warning in its status.
func TestRightsThatAreTooWide(t *testing.T) {
	for want, allowed := range map[string]func(authorization.SubjectAccessReviewSpec) bool{
		"by itself": func(s authorization.SubjectAccessReviewSpec) bool {
			return slices.Contains(s.Groups, TokenGroup)
		},
		"rbac-leave.yaml": func(s authorization.SubjectAccessReviewSpec) bool {
			return slices.Contains(s.Groups, "system:nodes") && s.ResourceAttributes.Verb == "delete"
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, c := registered(t)
			c.PrependReactor("create", "subjectaccessreviews",
				func(a ktesting.Action) (bool, runtime.Object, error) {
					review := a.(ktesting.CreateAction).GetObject().(*authorization.SubjectAccessReview)
					review.Status.Allowed = allowed(review.Spec)
					return true, review, nil
				})
			w.own(factory)
			pass(time.Second)
			w.warns("rights", want, true)
		})
	}
}

// The address of the DNS service comes from the registration, else from the cluster, else from
// Resource Manager. Without any of them the registration's owner is asked to set it.
func TestWhoSaysWhereDNSIs(t *testing.T) {
	const owners, clusters = "10.96.0.1", "10.96.0.2"
	for _, tt := range []struct{ own, cluster, want string }{
		{owners, clusters, owners}, {"", clusters, clusters}, {"", "", ""},
	} {
		row := flexnode.Cluster{Properties: flexnode.ClusterProperties{DNSServiceIP: tt.own}}
		equal(t, fmt.Sprintf("%+v", tt),
			(&Connection{}).facts(row, findings{dns: tt.cluster}, "").DNSServiceIP, tt.want)
	}
	for _, headless := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, c := newWorld(t), newFakeCluster("factory")
			c.PrependReactor("get", "services", func(a ktesting.Action) (bool, runtime.Object, error) {
				name := a.(ktesting.GetAction).GetName()
				none := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}
				if headless {
					return name == "kube-dns", none, nil
				}
				of := schema.GroupResource{Resource: "services"}
				return name == "kube-dns", nil, apierrors.NewForbidden(of, name, nil)
			})
			w.register(factoryID, c)
			w.own(factory)
			pass(time.Second)
			w.warns(fmt.Sprint("headless: ", headless), flexnode.NoDNS, true)
		})
	}
}

// An address of the DNS service that was read once remains while the Service cannot be read. An
// owner's address that differs from it is a warning.
func TestDNSThatIsKnown(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		before := w.cluster(factory).Facts
		services := c.CoreV1().Services("kube-system")
		is := must(services.Get(t.Context(), "kube-dns", metav1.GetOptions{}))
		must(0, services.Delete(t.Context(), "kube-dns", metav1.DeleteOptions{}))
		pass(2 * probeInterval)
		equal(t, "the facts without the Service", w.cluster(factory).Facts, before)
		edit(w, w.store.Clusters, factory, func(c *flexnode.Cluster) {
			c.Properties.DNSServiceIP, c.Version = "10.96.0.99", "2"
		})
		pass(time.Second)
		w.warns("another address", "10.96.0.99", true)
		w.warns("another address", is.Spec.ClusterIP, true)
	})
}

// Repeated probes write nothing while nothing changes.
func TestProbesOfTheSameWriteNothing(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, _ *fakeCluster) {
		pass(time.Minute)
		before := w.memory.Commits()
		pass(time.Hour)
		equal(t, "commits in an hour", w.memory.Commits()-before, 0)
	})
}

// A replica that does not own the cluster any more has no effects in it or in the store.
func TestNoEffectsWithoutOwnership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := registered(t)
		o := w.own(factory)
		id := w.token("edge-1")
		o.invalid.Store(true)
		w.put(factoryID, "edge-2", flexnode.Desired{})
		equal(t, "a request was answered", c.Ask(csr("first", id, "edge-1")), "")
		equal(t, "Secrets", len(c.secrets()), 1)
		// By its clock it is the owner, and in the store it is not.
		o.invalid.Store(false)
		must(w.store.Commit(context.Background(), nil,
			[]store.Write{{Key: o.fence.Key, Value: []byte("another")}}))
		equal(t, "a request was answered", c.Ask(csr("second", id, "edge-1")), "")
		close(o.lost)
		synctest.Wait()
		equal(t, "the work has ended", w.manager.working[factory].ended(), true)
	})
}

// Former facts are kept as long as a revision of a node has them, and no longer while the cluster
// changes; if they have become the present ones meanwhile, they stay.
func TestLayersAreCollected(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		move := func(i int) { w.moveAPIServer(fmt.Sprintf("https://c%d.example", i)) }
		layers := func() int { return w.rows(w.store.Layers.Key("")) }
		ofDefaults := layers() - 1
		w.token("edge-1")
		pass(time.Second)
		for i := range 20 {
			move(i)
		}
		w.drop("edge-1")
		pass(time.Second)
		for i := range 20 {
			move(20 + i)
		}
		before, did, changes := layers(), w.store.Did, 0
		w.store.Did = func(what string) {
			if did(what); what == "layer collected" && changes < 2 {
				changes++
				move(10 * changes)
			}
		}
		must(0, w.store.CollectLayers(context.Background()))
		w.store.Did = did
		present := must(w.store.Clusters.Get(context.Background(), factory)).Value.Facts
		kept := must(w.store.Layers.Get(context.Background(), present)).Exists()
		if is := layers() - ofDefaults; before < 40 || changes != 2 || !kept || is > 3 {
			t.Errorf("%d layers of facts of %d are left, the present: %t", is, before-ofDefaults, kept)
		}
		w.token("edge-2")
		pass(time.Second)
		move(50)
		must(0, w.store.CollectLayers(context.Background()))
		history := must(w.store.History.Get(context.Background(), factory+"/edge-2")).Value
		all := must(history.All())
		for _, r := range all {
			if row := must(w.store.Layers.Get(context.Background(), r.Facts)); !row.Exists() {
				t.Errorf("the facts of revision %d are gone", r.Version)
			}
		}
		if len(all) < 2 {
			t.Errorf("%d revisions are kept", len(all))
		}
	})
}

// Another team registers the first one's API server under its own id: the registration is refused,
// and nothing of the first one's is created, deleted or denied.
func TestAnAPIServerIsRegisteredOnce(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.token("edge-1")
		before := c.secrets()
		w.register(harbourID, c)
		w.own(harbour)
		pass(time.Minute)
		got := w.cluster(harbour)
		if got.Properties.ProvisioningState != api.Failed || got.Properties.Reachable ||
			got.Facts != "" || got.Probe.Refused == "" {
			t.Errorf("the second registration: %+v", got)
		}
		w.put(harbourID, "edge-1", flexnode.Desired{})
		pass(20 * time.Minute) // and it searches for orphans twice
		equal(t, "Secrets", strings.Join(c.secrets(), " "), strings.Join(before, " "))
		equal(t, "a machine of the first registration", c.Ask(w.joining("first", "edge-1")), "Approved")
		equal(t, "the first registration", w.cluster(factory).Properties.ProvisioningState, "")
		if !strings.Contains(w.audit.String(), "registration refused") {
			t.Error("it is not in the audit log")
		}
		equal(t, "API servers", w.servers(), map[string]string{serverOf("factory"): factory})
		equal(t, "the first registration's", w.cluster(factory).APIServer, serverOf("factory"))
		// When the first one is gone the second one may have it.
		w.markDeletion(false, time.Now())
		pass(30 * time.Second)
		if got := w.cluster(harbour); got.Facts == "" || got.Probe.Refused != "" {
			t.Errorf("after the first one is gone: %+v", got)
		}
		equal(t, "API servers", w.servers(), map[string]string{serverOf("factory"): harbour})
	})
}

// servers returns the owners of API servers, by the identifiers of these.
func (w *world) servers() map[string]string {
	rows, _, err := w.store.APIServers.List(context.Background(), "")
	must(0, err)
	of := map[string]string{}
	for _, row := range rows {
		of[row.Key] = row.Value
	}
	return of
}

// serverOf returns the identifier of a fake's API server.
func serverOf(name string) string {
	return newFakeCluster(name).connection().server("uid-of-" + name)
}

// A registration that moves to another API server releases the previous one.
func TestARegistrationMoves(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, _ *fakeCluster) {
		w.source.point(factory, newFakeCluster("moved"))
		pass(10 * time.Second)
		equal(t, "API servers", w.servers(), map[string]string{serverOf("moved"): factory})
		equal(t, "the registration's", w.cluster(factory).APIServer, serverOf("moved"))
	})
}
