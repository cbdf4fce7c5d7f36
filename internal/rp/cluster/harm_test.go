package cluster

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/untrusted"
)

// The provider leaves a harmful cluster after a moment and reports that; it does not affect another
// cluster, and the provider's memory stays small.
func TestAHostileCluster(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for what, answers := range map[string]map[string]http.HandlerFunc{
		"Nodes on pages without end": {nodesPath: func(w http.ResponseWriter, r *http.Request) {
			var list []string
			for i := range pageItems {
				list = append(list, fmt.Sprintf(`{"metadata":{"name":"n-%s-%d","labels":{"a":%q}}}`,
					r.URL.Query().Get("continue"), i, long))
			}
			fmt.Fprint(w, nodeList(fmt.Sprint(time.Now().UnixNano()), list...))
		}},
		"events without end": {"watch " + nodesPath: func(w http.ResponseWriter, r *http.Request) {
			for i := 0; r.Context().Err() == nil; i++ {
				fmt.Fprintf(w, `{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1",`+
					`"metadata":{"name":"n-%d","resourceVersion":"1"}}}`+"\n", i)
			}
		}},
		"endless pages of no Nodes": {nodesPath: says(nodeList("on"))},
		"an endless list":           {nodesPath: endless(`{"kind":"NodeList","items":[{}`, ",{}")},
		"endless requests": {requestsPath: endless(
			`{"kind":"CertificateSigningRequestList","items":[{}`, ",{}")},
	} {
		t.Run(what, func(t *testing.T) {
			h := newHostile(t, answers)
			w, c := withHostile(t, h)
			growsBy(t, 256, func() {
				until(t, "the hostile cluster is not left", func() bool { return w.counted(Limit) >= 2 })
				until(t, "the cluster is not told that it does harm", func() bool {
					return strings.Contains(w.cluster(harbour).Probe.Unreachable,
						"larger than the provider accepts")
				})
				w.change(func(v *store.View) error {
					return w.putIn(v, factoryID, "edge-1", flexnode.Desired{})
				})
				until(t, "the other cluster's node gets no token", func() bool {
					return w.credential(factory+"/edge-1").Value.State == store.Live
				})
				c.File(w.joining("first", "edge-1"))
				until(t, "the other cluster's request is not approved", func() bool {
					return c.Answer("first") == "Approved"
				})
			})
		})
	}
}

// A watch ends when it is stopped, also with an event that is not read.
func TestAStoppedWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := watch.NewFakeWithChanSize(1, false)
		k := kind{reduce: func(o runtime.Object) runtime.Object { return o }, ListWatch: &cache.ListWatch{
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return events, nil
			},
		}}
		for _, unread := range []bool{false, true} {
			w := must(k.WatchWithContext(t.Context(), metav1.ListOptions{}))
			if unread {
				events.Add(kubeNode("edge-1", corev1.ConditionTrue))
			}
			synctest.Wait()
			w.Stop()
			synctest.Wait()
			equal(t, "the watch of the cluster is stopped", events.IsStopped(), true)
			events.Reset()
		}
	})
}

// An API server that answers slowly or never does not delay any other cluster.
func TestAClusterThatStalls(t *testing.T) {
	stall := func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	h := newHostile(t, map[string]http.HandlerFunc{nodesPath: stall, requestsPath: stall})
	w, _ := withHostile(t, h)
	until(t, "the other cluster is not reached", func() bool {
		return w.cluster(factory).Properties.Reachable
	})
	worker := w.manager.working[factory]
	until(t, "the other cluster's Nodes are not known", func() bool {
		s, err := worker.use()
		return err == nil && s.nodesKnown.Load()
	})
}

// A Node that Kubernetes could not store does not crash the provider or hide the other Nodes.
func TestAHostileNode(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.pool("10.244.0.0/16", 24)
		w.put(factoryID, "edge-1", flexnode.Desired{})
		for _, name := range []string{strings.Repeat("n", 1000), "../edge-1", "edge-2"} {
			n := kubeNode(name, corev1.ConditionTrue)
			n.Spec.PodCIDRs = []string{strings.Repeat("1", 65_000)}
			n.Status.Conditions[0].Reason = strings.Repeat("\xff", 1<<20)
			c.add(n)
		}
		c.join("edge-1", corev1.ConditionTrue)
		pass(subnetsInterval + time.Minute)
		equal(t, "a Node", w.ready(factory+"/edge-1").Status, "True")
		s := must(w.manager.working[factory].use())
		equal(t, "those that are known", len(s.nodes.ListKeys()), 2)
	})
}

// Nodes whose Ready conditions change without end cause a limited number of writes; the last change
// of each is written. Those that wait are seldom compared.
func TestNodesThatFlap(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		const nodes, burst, seconds = 300, 100, 10
		worker := w.manager.working[factory]
		worker.readies.SetBurst(burst)
		name := func(i int) string { return fmt.Sprintf("edge-%d", i) }
		for i := range nodes {
			w.put(factoryID, name(i), flexnode.Desired{})
			must(c.CoreV1().Nodes().Create(t.Context(), kubeNode(name(i), corev1.ConditionTrue),
				metav1.CreateOptions{}))
		}
		pass(time.Minute)
		before := w.memory.Commits()
		for s := range seconds {
			for i := range nodes {
				n := kubeNode(name(i), corev1.ConditionTrue)
				n.Status.Conditions[0].Reason = fmt.Sprintf("R%d", s)
				must(c.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}))
			}
			pass(time.Second)
		}
		if n := w.memory.Commits() - before; n > burst+seconds*readyRate+seconds {
			t.Errorf("%d commits", n)
		}
		var compared atomic.Int64
		w.manager.tasks.mu.Lock() // jobs are started with it
		do := worker.tasks.do
		worker.tasks.do = func(x task) {
			if x.kind == taskReadiness {
				compared.Add(1)
			}
			do(x)
		}
		w.manager.tasks.mu.Unlock()
		pass(time.Minute)
		if n := compared.Load(); n > 2*nodes+nodes/2 { // each write is compared, too
			t.Errorf("%d comparisons", n)
		}
		for i := range nodes {
			equal(t, name(i), w.ready(factory+"/"+name(i)).Reason, "R9")
		}
	})
}

// A panic in the work for a cluster, or in one of its watches, ends only the session with that
// cluster and is counted; the work starts again after a growing pause.
func TestAPanicEndsTheSession(t *testing.T) {
	for verb, resource := range map[string]string{"create": "secrets", "list": "nodes"} {
		inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
			worker := w.manager.working[factory]
			before := must(worker.use())
			var broken atomic.Bool
			broken.Store(true)
			c.PrependReactor(verb, resource, func(ktesting.Action) (bool, runtime.Object, error) {
				if broken.Load() {
					panic("a fault")
				}
				return false, nil, nil
			})
			w.register(harbourID, newFakeCluster("harbour"))
			w.own(harbour)
			w.put(factoryID, "edge-1", flexnode.Desired{})
			w.put(harbourID, "edge-1", flexnode.Desired{})
			_ = worker.guard(func() error { return store.ErrCrash }) // the next session lists again
			pass(10 * time.Minute)
			if n := w.counted(Panic); n < 4 || n > 12 {
				t.Errorf("%s %s: %d sessions have ended within ten minutes", verb, resource, n)
			}
			equal(t, "the credential of the other cluster",
				w.credential(harbour+"/edge-1").Value.State, store.Live)
			broken.Store(false)
			pass(10 * time.Minute)
			equal(t, "it is the same session", must(worker.use()) == before, false)
			equal(t, "the credential", w.credential(factory+"/edge-1").Value.State, store.Live)
		})
	}
}

// A panic while a node is written with others ends no process, and stops no other node.
func TestAPanicOfANode(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		names := []string{"edge-1", "edge-2"}
		for _, name := range names {
			w.put(factoryID, name, flexnode.Desired{})
		}
		var once sync.Once
		w.store.Did = func(what string) {
			if what == "nodes rendered" {
				once.Do(func() { panic("a fault") })
			}
		}
		w.moveAPIServer("https://moved.example/")
		pass(time.Minute)
		for _, name := range names {
			equal(t, "the facts of "+name, w.node(factory+"/"+name).Facts, w.cluster(factory).Facts)
		}
		session := must(w.manager.working[factory].use())
		w.manager.Heard = func(key string) bool {
			if key == factory+"/edge-2" {
				panic("a fault")
			}
			return false
		}
		w.moveAPIServer("https://again.example/")
		pass(10 * time.Minute)
		equal(t, "the facts of edge-1", w.node(factory+"/edge-1").Facts, w.cluster(factory).Facts)
		after, err := w.manager.working[factory].use()
		if n := w.counted(Panic); n < 11 || after != session || err != nil {
			t.Errorf("of one that always panics: %d are counted; the session ended: %t, %v", n,
				after != session, err)
		}
	})
}

// Work on a cluster that does not end after its ownership, such as in a program that hangs, delays
// neither other clusters nor the end of the provider.
func TestWorkThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hangs := make(chan struct{})
		dial := w.manager.Dial
		w.manager.Dial = func(a Access) (*Connection, error) {
			if strings.HasPrefix(a.Fingerprint, factory) {
				<-hangs
			}
			return dial(a)
		}
		w.register(factoryID, newFakeCluster("factory"))
		w.register(harbourID, newFakeCluster("harbour"))
		w.own(factory)
		pass(time.Second)
		began := time.Now()
		delete(w.owned, factory)
		go w.own(harbour) // which ends the work on the factory
		pass(store.OwnerMargin / 2)
		equal(t, "another cluster is reachable", w.cluster(harbour).Properties.Reachable, true)
		equal(t, "workers that were left behind", w.counted(LeftBehind), 0)
		w.manager.assign(t.Context(), w.owned)
		pass(store.OwnerMargin)
		if n := w.counted(LeftBehind); n != 1 || time.Since(began) > 2*store.OwnerMargin {
			t.Errorf("%d workers were left behind after %s", n, time.Since(began))
		}
		w.own(factory)
		pass(time.Second)
		began = time.Now()
		w.manager.assign(t.Context(), nil) // the end of the provider
		if took := time.Since(began); took > 2*store.OwnerMargin {
			t.Errorf("the end of the provider has taken %s", took)
		}
		close(hangs)
		synctest.Wait()
	})
}

// giantRequest returns a certificate request with an RSA key of so many bits, and a signature.
func giantRequest(bits int) []byte {
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	n.Add(n, big.NewInt(1))
	spki := must(x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: n, E: 65537}))
	subject := must(asn1.Marshal(pkix.Name{CommonName: "system:node:edge-1",
		Organization: []string{"system:nodes"}}.ToRDNSequence()))
	tbs := must(asn1.Marshal(struct {
		Version      int
		Subject, Key asn1.RawValue
		Attributes   []int `asn1:"tag:0,set"`
	}{0, asn1.RawValue{FullBytes: subject}, asn1.RawValue{FullBytes: spki}, []int{}}))
	signature := make([]byte, bits/8)
	_, _ = rand.Read(signature[1:])
	der := must(asn1.Marshal(struct {
		TBS       asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{asn1.RawValue{FullBytes: tbs}, pkix.AlgorithmIdentifier{
		Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, Parameters: asn1.NullRawValue},
		asn1.BitString{Bytes: signature, BitLength: bits}}))
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// Requests with keys that no kubelet makes are denied before any computation with the keys.
func TestGiantKeys(t *testing.T) {
	for bits, want := range map[int]string{
		4096: "is not signed", 1024: "key", 8192: "key", 32 << 10: "key", 64 << 10: "no request",
		4 << 20: "no request",
	} {
		r := csr("x", "abcdef", "edge-1")
		r.Spec.Request = giantRequest(bits)
		if a := readCSR(r); !strings.Contains(a.Flaw, want) {
			t.Errorf("%d bits: %q", bits, a.Flaw)
		}
		w := servingWish("x", "edge-1", "192.0.2.7").signed()
		w.Spec.Request = r.Spec.Request
		v, why := verdictOn(w, seenAt("edge-1", "192.0.2.7"), reservedHere(), nil)
		if v != "Denied" || !strings.Contains(why, want) {
			t.Errorf("%d bits: %v %q", bits, v, why)
		}
	}
}

// A reduced certificate request has exactly the parts that are used; one that is larger than any
// kubelet's is reduced to nothing.
func TestRequestsAreReduced(t *testing.T) {
	r := csr("x", "abcdef", "edge-1")
	want := readCSR(r)
	r.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: strings.Repeat("m", 1<<20)}}
	r.Spec.Extra = map[string]certificates.ExtraValue{"a": {strings.Repeat("m", 1<<20)}}
	r.Status.Certificate = []byte(strings.Repeat("c", 1<<20))
	kept := reduceRequest(r).(*certificates.CertificateSigningRequest)
	if got := readCSR(kept); got != want || !concerns(kept) || !answersOf(kept).issued ||
		kept.Size() > maxRequest {
		t.Errorf("%+v, %d bytes", got, kept.Size())
	}
	for what, spoil := range map[string]func(){
		"annotations": func() { r.Annotations = map[string]string{"a": strings.Repeat("a", 1<<20)} },
		"request":     func() { r.Spec.Request = giantRequest(4 << 20) },
		"groups":      func() { r.Spec.Groups = make([]string, 1<<20) },
	} {
		spoil()
		kept := reduceRequest(r).(*certificates.CertificateSigningRequest)
		if concerns(kept) || kept.Size() > 200 || kept.Name != "x" {
			t.Errorf("%s: %d bytes", what, kept.Size())
		}
		r.Annotations, r.Spec.Groups = nil, nil
	}
}

// An API server that keeps showing requests without their answers gets one answer to each, within
// the budget of reviews; a new machine's request is among them.
func TestRequestsAreReviewedOnce(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		w.token("edge-1")
		answers := map[string]int{}
		c.PrependReactor("update", "certificatesigningrequests",
			func(a ktesting.Action) (bool, runtime.Object, error) {
				r := a.(ktesting.UpdateAction).GetObject().(*certificates.CertificateSigningRequest)
				if a.GetSubresource() == "approval" {
					answers[r.Name]++
				}
				return a.GetSubresource() == "approval" && r.Name != "last", r, nil
			})
		hostile := csr("first", "abcdef", "edge-1")
		for i := range reviewBurst + 100 {
			r := hostile.DeepCopy()
			r.Name, r.UID = fmt.Sprintf("r-%d", i), types.UID(fmt.Sprint(i))
			c.File(r)
		}
		for i := range 10 {
			r := hostile.DeepCopy()
			r.Name, r.UID, r.Labels = "r-0", "0", map[string]string{"a": fmt.Sprint(i)}
			must(c.CertificatesV1().CertificateSigningRequests().
				Update(t.Context(), r, metav1.UpdateOptions{}))
			pass(2 * time.Second)
		}
		if n := len(answers); n != reviewBurst+100 || answers["r-0"] != 1 {
			t.Errorf("%d requests were answered, one of them %d times", n, answers["r-0"])
		}
		last := w.joining("last", "edge-1")
		last.UID = "last"
		equal(t, "a machine's request", c.Ask(last), "Approved")
	})
}

// The max number of Nodes and addresses takes little memory, and a request with the max number of
// addresses takes little time.
func TestManyAddresses(t *testing.T) {
	s := &session{nodes: cache.NewIndexer(cache.MetaNamespaceKeyFunc,
		cache.Indexers{byAddress: addressesOf})}
	node := func(i int) *seenNode {
		n := kubeNode(fmt.Sprintf("n-%d", i), corev1.ConditionTrue)
		for j := range 2 * maxAddresses {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{
				Type: corev1.NodeInternalIP, Address: fmt.Sprintf("fd00::%x:%x:%x", j, i>>8, i&255)})
		}
		return seeNode(n, "")
	}
	growsBy(t, 192, func() {
		for i := range maxNodes {
			must(0, s.nodes.Add(node(i)))
		}
	})
	wish := servingWish("x", "n-7", slices.Repeat([]string{"fd00::1:0:7"}, 500)...)
	r := wish.signed()
	if len(r.Spec.Request) > maxRequest {
		t.Fatalf("the request has %d bytes", len(r.Spec.Request))
	}
	began := time.Now()
	v, why := verdictOn(r, node(7), reservedHere(), func(a netip.Addr) bool {
		return s.isTaken("n-7", a)
	})
	if took := time.Since(began); v != "Approved" || took > time.Second {
		t.Errorf("%v %q after %s", v, why, took)
	}
	must(0, s.nodes.Add(seenAt("other", "fd00::1:0:7")))
	if !s.isTaken("n-7", netip.MustParseAddr("fd00::1:0:7")) || s.isTaken("n-7",
		netip.MustParseAddr("fd00::2:0:7")) {
		t.Error("an address of another Node is not known")
	}
}

// A kubeconfig that names files or a proxy, or skips TLS verification, is refused unless its
// binding is trusted; one that names a program always is. Nothing that it names is opened or run.
func TestKubeconfigsOfTeams(t *testing.T) {
	dir := t.TempDir()
	path, ran := filepath.Join(dir, "team.yaml"), filepath.Join(dir, "ran")
	replace(t, filepath.Join(dir, "secret"), "the provider's own")
	good := kubeconfig("https://a.example", string(testCA()), "x")
	user := func(text string) string { return strings.Replace(good, "token: x", text, 1) }
	server := func(text string) string { return strings.Replace(good, "server:", text+", server:", 1) }
	program := user("exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, " +
		"interactiveMode: Never, args: [-c, \"touch " + ran + "\"]}")
	s := &Sources{Bindings: []Binding{{ClusterID: factoryID, Kubeconfig: path}}}
	for what, text := range map[string]string{
		"exec":                     program,
		"tokenFile":                user("tokenFile: secret"),
		"client-certificate":       user("client-certificate: secret"),
		"client-key":               user("token: x, client-key: secret"),
		"auth-provider":            user("auth-provider: {name: oidc}"),
		"username":                 user("username: x, password: yy"),
		"as":                       user("token: x, as: system:admin"),
		"proxy-url":                server("proxy-url: http://127.0.0.1:1"),
		"insecure-skip-tls-verify": server("insecure-skip-tls-verify: true"),
		"certificate-authority":    server("certificate-authority: secret"),
		"https URL":                strings.Replace(good, "https://", "http://", 1),
		"no cluster or no user":    strings.Replace(good, "cluster: c,", "cluster: other,", 1),
		"a certificate": kubeconfig("https://a.example",
			"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "x"),
		"more than": good + "# " + strings.Repeat("x", maxKubeconfig),
	} {
		replace(t, path, text)
		_, err := s.Access(t.Context(), flexnode.Cluster{ID: factoryID}, false)
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		if err := s.Bindings[0].Check(); err == nil {
			t.Errorf("%s: not found by the check", what)
		}
	}
	replace(t, path, program)
	trusted := Binding{ClusterID: factoryID, Kubeconfig: path, Trusted: true}
	if err := trusted.Check(); !errors.Is(err, errProgram) {
		t.Errorf("a program of a trusted kubeconfig: %v", err)
	}
	replace(t, path, good)
	if a, err := s.Access(t.Context(), flexnode.Cluster{ID: factoryID}, false); err != nil ||
		a.Config.BearerToken != "x" || a.Local {
		t.Errorf("a good one: %+v, %v", a, err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program was run")
	}
}

// An API server that claims another cluster's uid, under a CA of its own, does not pass for it,
// even if it comes first.
func TestAnAPIServerIsKnownByItsCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		dial := w.manager.Dial
		w.manager.Dial = func(a Access) (*Connection, error) {
			c, err := dial(a)
			if strings.HasPrefix(a.Fingerprint, harbour) {
				c.CA = []byte("another CA")
			}
			return c, err
		}
		w.register(harbourID, newFakeCluster("factory")) // with that uid
		w.own(harbour)
		pass(time.Second)
		w.register(factoryID, newFakeCluster("factory"))
		w.own(factory)
		pass(time.Minute)
		for _, key := range []string{factory, harbour} {
			if got := w.cluster(key); got.Properties.ProvisioningState != "" ||
				!got.Properties.Reachable {
				t.Errorf("%s: %+v", key, got)
			}
		}
	})
	one, two := newHostile(t, nil).dial(t), newHostile(t, nil).dial(t)
	for _, c := range []*Connection{one, two} {
		must(c.ask(t.Context()))
	}
	if one.server("u") == one.server("v") || one.server("u") == (&Connection{CA: one.CA}).server("u") {
		t.Error("it is not named by uid and the CA that has proved it")
	}
}

// FuzzNode reads arbitrary Nodes of an API server.
func FuzzNode(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"n","labels":{"kubernetes.azure.com/managed":"false"}},` +
		`"spec":{"podCIDRs":["10.1.0.0/24"],"taints":[{"key":"a","effect":"NoSchedule"}]},` +
		`"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.7"}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		node := &corev1.Node{}
		if json.Unmarshal(text, node) != nil {
			return
		}
		seen := seeNode(node, "")
		size := len(seen.name) + len(seen.subnets) + len(seen.addresses) +
			len(seen.version)
		if size > 4<<10 || seen.condition().Reason != "" &&
			seen.condition().Reason != untrusted.Reason(seen.condition().Reason) {
			t.Errorf("%d bytes, %+v", size, seen.condition())
		}
		taintsIn(seen.taints.Value())
		w := &worker{key: factory}
		if isName(seen.name) {
			_ = flexnode.ClusterOf(w.key + "/" + seen.name)
		}
		for _, subnet := range strings.Split(seen.subnets, ",") {
			flexnode.Overlapped(factory, "10.0.0.0/8", 24, subnet)
		}
	})
}

// FuzzCertificateRequest reads arbitrary certificate requests of an API server.
func FuzzCertificateRequest(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"n"},"spec":{"username":"system:node:n"}}`),
		csr("x", "abcdef", "n").Spec.Request)
	f.Add([]byte(`{}`), giantRequest(8192))
	f.Fuzz(func(t *testing.T, text, request []byte) {
		r := &certificates.CertificateSigningRequest{}
		if json.Unmarshal(text, r) != nil {
			return
		}
		r.Spec.Request = request
		kept := reduceRequest(r).(*certificates.CertificateSigningRequest)
		if a := readCSR(kept); a.Node != "" && !isName(a.Node) {
			t.Errorf("%+v", a)
		}
		answersOf(kept)
		concerns(kept)
		verdictOn(kept, seenAt("n", "192.0.2.7"), reservedHere(),
			func(netip.Addr) bool { return false })
	})
}

// FuzzKubeconfig reads arbitrary kubeconfigs of a team.
func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte(kubeconfig("https://a.example", string(testCA()), "x")))
	f.Add([]byte(`{"users":[{"name":"u","user":{"exec":{"command":"x"}}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := plainConfig(text)
		if err != nil {
			return
		}
		if c.ExecProvider != nil || c.AuthProvider != nil || c.Proxy != nil || c.Insecure ||
			c.CAFile+c.CertFile+c.KeyFile+c.BearerTokenFile != "" ||
			!strings.HasPrefix(strings.ToLower(c.Host), "https://") {
			t.Errorf("%+v", c)
		}
	})
}

// Clusters whose objects are listed at once take turns: eight lists are in memory, not one of each
// cluster that a replica takes over.
func TestListsTakeTurns(t *testing.T) {
	const clusters = 20
	var running, most atomic.Int32
	arrived, proceed := make(chan bool, clusters), make(chan bool)
	k := kind{budget: 1, ListWatch: &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			now := running.Add(1)
			defer running.Add(-1)
			for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); {
				seen = most.Load()
			}
			arrived <- true
			<-proceed
			return &corev1.NodeList{}, nil
		},
	}}
	var all sync.WaitGroup
	for range clusters {
		all.Go(func() {
			if _, err := k.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	for range cap(lists) {
		<-arrived // they are in progress at once
	}
	close(proceed)
	all.Wait()
	equal(t, "the lists in progress at once, at most", most.Load(), 8)
}
