package cluster

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// hostile is an API server that answers correctly, except at the paths for which a test sets
// another answer.
type hostile struct {
	*httptest.Server
	config  string // a kubeconfig of it
	ca      string // that has signed its certificate
	answers map[string]http.HandlerFunc
}

func newHostile(t testing.TB, answers map[string]http.HandlerFunc) *hostile {
	h := &hostile{answers: answers}
	h.Server = httptest.NewUnstartedServer(h)
	h.EnableHTTP2 = true
	h.Config.ErrorLog = nil
	h.StartTLS()
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	h.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}))
	h.config = kubeconfig(h.URL, h.ca, "a-token")
	return h
}

// says is an answer that is always the same.
func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
}

// nodeList returns a page of Nodes.
func nodeList(next string, nodes ...string) string {
	return fmt.Sprintf(`{"kind":"NodeList","apiVersion":"v1","metadata":{"continue":%q,`+
		`"resourceVersion":"5"},"items":[%s]}`, next, strings.Join(nodes, ","))
}

const (
	nodesPath    = "/api/v1/nodes"
	ownPath      = "/api/v1/namespaces/default/services/kubernetes"
	requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	systemPath   = "/api/v1/namespaces/kube-system"
)

// usual holds the correct answers; any other is the one to a review of access.
var usual = map[string]http.HandlerFunc{
	"/version": says(`{"gitVersion":"v1.35.4"}`),
	ownPath:    says(`{"kind":"Service","apiVersion":"v1","metadata":{"uid":"u"}}`),
	nodesPath:  says(nodeList("")),
	requestsPath: says(`{"kind":"CertificateSigningRequestList",` +
		`"apiVersion":"certificates.k8s.io/v1","metadata":{"resourceVersion":"1"}}`),
	systemPath + "/services/kube-dns":         http.NotFound,
	systemPath + "/secrets":                   says(`{"kind":"Secret","apiVersion":"v1"}`),
	systemPath + "/configmaps/" + revokedName: says(`{"kind":"ConfigMap","apiVersion":"v1"}`),
	"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/" + revokedName: says(
		`{"kind":"ValidatingAdmissionPolicyBinding","apiVersion":"admissionregistration.k8s.io/v1"}`),
}

// ServeHTTP answers in JSON or, like a real API server, in protobuf if the request prefers that.
func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.Header.Get("Accept"), "protobuf") {
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		fmt.Fprint(w, "k8s\x00")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Has("watch") {
		if answer := h.answers["watch "+r.URL.Path]; answer != nil {
			answer(w, r)
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	for _, answers := range []map[string]http.HandlerFunc{h.answers, usual} {
		if answer := answers[r.URL.Path]; answer != nil {
			answer(w, r)
			return
		}
	}
	fmt.Fprint(w, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1"}`)
}

func (h *hostile) dial(t testing.TB) *Connection {
	return must(Dial(Access{Config: must(plainConfig([]byte(h.config))), Local: true}))
}

// endless writes head, and then again repeatedly until the connection ends.
func endless(head, again string) http.HandlerFunc {
	again = strings.Repeat(again, 1+(64<<10)/len(again))
	return func(w http.ResponseWriter, r *http.Request) {
		_, err := fmt.Fprint(w, head)
		for err == nil && r.Context().Err() == nil {
			_, err = fmt.Fprint(w, again)
		}
	}
}

// bomb returns a small answer that unpacks to 256 MiB of JSON.
func bomb() string {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprint(z, `{"gitVersion":"`)
	zeros := bytes.Repeat([]byte("0"), 1<<20)
	for range 1 << 8 {
		z.Write(zeros)
	}
	z.Close()
	return packed.String()
}

// growsBy has the heap grow by so many MiB at most while something is done, with Go's default for
// the collection of garbage.
func growsBy(t *testing.T, limit int, do func()) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	most := 0
	for {
		runtime.ReadMemStats(&now)
		most = max(most, int(now.HeapAlloc)-int(before.HeapAlloc))
		select {
		case <-done:
			t.Logf("%d MiB", most>>20)
			if most > limit<<20 {
				t.Errorf("it has taken %d MiB, more than %d", most>>20, limit)
			}
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Any answer of an API server is read only up to a limit, and takes little memory and time.
func TestAnswersAreBounded(t *testing.T) {
	packed := bomb()
	const service = `{"kind":"Service","apiVersion":"v1","metadata":{"uid":"u","annotations":{"a":"`
	const list = `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{}`
	ask := func(ctx context.Context, c *Connection) error {
		_, err := c.ask(ctx)
		return err
	}
	page := func(ctx context.Context, c *Connection) error {
		_, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: pageItems})
		return err
	}
	watches := func(ctx context.Context, c *Connection) error {
		w, err := c.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for range w.ResultChan() {
		}
		return errHarm // the stream has ended
	}
	for what, tt := range map[string]struct {
		path   string
		answer http.HandlerFunc
		do     func(context.Context, *Connection) error
	}{
		"an endless version":  {"/version", endless(`{"gitVersion":"`, "0"), ask},
		"a version of spaces": {"/version", endless("", " "), ask},
		"a bomb": {"/version", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			fmt.Fprint(w, packed)
		}, ask},
		"an endless object":    {ownPath, endless(service, "0"), ask},
		"an endless text":      {nodesPath, endless(list+`,{"metadata":{"name":"`, "0"), page},
		"endless items":        {nodesPath, endless(list, ",{}"), page},
		"endless small values": {nodesPath, endless(list+`,{"spec":{"taints":[{}`, ",{}"), page},
		"a deep one":           {nodesPath, endless(list+`,`, `{"a":`), page},
		"YAML": {"/version", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/yaml")
			fmt.Fprint(w, "a: &a [x, x]\nb: [*a, *a]\n")
		}, ask},
		"an endless error": {"/version", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			endless("", "0")(w, r)
		}, ask},
		"an endless event": {"watch " + nodesPath,
			endless(`{"type":"ADDED","object":{"a":"`, "0"), watches},
	} {
		t.Run(what, func(t *testing.T) {
			h := newHostile(t, map[string]http.HandlerFunc{tt.path: tt.answer})
			c := h.dial(t)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var err error
			growsBy(t, 192, func() { err = tt.do(ctx, c) })
			if err == nil || ctx.Err() != nil {
				t.Errorf("%v; %v", err, ctx.Err())
			}
			if !errors.Is(err, errHarm) && what != "an endless error" {
				t.Errorf("it is no harm: %v", err)
			}
		})
	}
}

// The largest accepted page, of the values that take most memory, takes little.
func TestTheLargestPage(t *testing.T) {
	h := newHostile(t, map[string]http.HandlerFunc{nodesPath: says(nodeList("", fmt.Sprintf(
		`{"metadata":{"name":"n"},"status":{"conditions":[{}%s]}}`,
		strings.Repeat(",{}", pageLimit.values/2-10))))})
	growsBy(t, 256, func() {
		must(h.dial(t).Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{Limit: pageItems}))
	})
}

// Answers of a real API server pass: a page of large Nodes, and a stream of events that is much
// longer than the limit of one event.
func TestUsualAnswersPass(t *testing.T) {
	node := func(i int) string {
		return fmt.Sprintf(`{"metadata":{"name":"n-%d","resourceVersion":"7"},`+
			`"status":{"images":[{"names":[%q]}]}}`, i, strings.Repeat("x", 16<<10))
	}
	var page []string
	for i := range pageItems {
		page = append(page, node(i))
	}
	h := newHostile(t, map[string]http.HandlerFunc{
		nodesPath: says(nodeList("", page...)),
		"watch " + nodesPath: func(w http.ResponseWriter, _ *http.Request) {
			for i := range 400 {
				fmt.Fprintln(w, `{"type":"ADDED","object":`+
					strings.Replace(node(i), "{", `{"kind":"Node","apiVersion":"v1",`, 1)+"}")
			}
		},
	})
	nodes := h.dial(t).Client.CoreV1().Nodes()
	list := must(nodes.List(t.Context(), metav1.ListOptions{Limit: pageItems}))
	equal(t, "Nodes on the page", len(list.Items), pageItems)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w := must(nodes.Watch(ctx, metav1.ListOptions{}))
	defer w.Stop()
	for i := range 400 {
		if e := <-w.ResultChan(); e.Type != "ADDED" {
			t.Fatalf("event %d: %+v", i, e)
		}
	}
}

// A redirect is not followed, and its target gets no credential.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var hits atomic.Int64
	other := newHostile(t, nil)
	other.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	h := newHostile(t, map[string]http.HandlerFunc{
		"/version": http.RedirectHandler(other.URL+"/version", http.StatusTemporaryRedirect).ServeHTTP})
	if _, err := h.dial(t).ask(t.Context()); !errors.Is(err, errHarm) {
		t.Errorf("%v", err)
	}
	equal(t, "requests at the other place", hits.Load(), 0)
}

// An API server at one of the provider's own addresses, by any name, is refused unless its binding
// allows that.
func TestLocalAddressesAreRefused(t *testing.T) {
	h := newHostile(t, nil)
	config := must(plainConfig([]byte(h.config)))
	c := must(Dial(Access{Config: config}))
	if _, err := c.ask(t.Context()); !errors.Is(err, errLocal) {
		t.Errorf("loopback: %v", err)
	}
	own := ""
	for _, a := range must(net.InterfaceAddrs()) {
		if n := a.(*net.IPNet); n.IP.IsGlobalUnicast() {
			own = net.JoinHostPort(n.IP.String(), "6443")
		}
	}
	for address, refused := range map[string]bool{
		"127.0.0.1:6443": true, "127.9.9.9:443": true, "[::1]:6443": true,
		"[::ffff:127.0.0.1]:6443": true, "169.254.169.254:443": true, "[fe80::1%lo]:443": true,
		"0.0.0.0:443": true, "[::]:443": true, "224.0.0.1:443": true, "nowhere": true,
		own: true, "203.0.113.9:443": false, "10.250.7.9:6443": false, "[fd96::9]:443": false,
	} {
		err := refuseLocal(t.Context(), "tcp", address, nil)
		if (err != nil) != refused && address != "" {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// Lists are read in pages, in their present state.
func TestListsAreReadInPages(t *testing.T) {
	var asked []string
	h := newHostile(t, map[string]http.HandlerFunc{
		nodesPath: func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.RawQuery)
			next := ""
			if len(asked) < 3 {
				next = fmt.Sprintf("page-%d", len(asked))
			}
			fmt.Fprint(w, nodeList(next, fmt.Sprintf(`{"metadata":{"name":"n-%d"}}`, len(asked))))
		}})
	k := h.nodes(t, &session{})
	list := must(k.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "0"}))
	equal(t, "what was asked", strings.Join(asked, " "),
		"limit=500 continue=page-1&limit=500 continue=page-2&limit=500")
	var names []string
	for _, o := range must(meta.ExtractList(list)) {
		names = append(names, o.(*seenNode).name)
	}
	equal(t, "the Nodes", strings.Join(names, " "), "n-1 n-2 n-3")
}

// Endless Nodes, in pages or on pages without any, end the session after a few pages.
func TestTooManyNodes(t *testing.T) {
	for what, items := range map[string]int{"many": pageItems, "none": 0} {
		n := 0
		h := newHostile(t, map[string]http.HandlerFunc{
			nodesPath: func(w http.ResponseWriter, r *http.Request) {
				n++
				var list []string
				for i := range items {
					list = append(list, fmt.Sprintf(`{"metadata":{"name":"n-%d-%d"}}`, n, i))
				}
				fmt.Fprint(w, nodeList("on", list...))
			}})
		var why error
		k := h.nodes(t, &session{fail: func(err error) { why = err }})
		k.budget = 4000
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := k.ListWithContext(ctx, metav1.ListOptions{}); err == nil ||
			!errors.Is(why, errTooMany) || n > 18 {
			t.Errorf("%s: %v, the session: %v, %d pages", what, err, why, n)
		}
	}
}

// nodes returns the watch of its Nodes.
func (h *hostile) nodes(t *testing.T, s *session) kind {
	p := newPool(firstPause, lastPause)
	t.Cleanup(p.queue.ShutDown)
	w := &worker{Manager: &Manager{}, tasks: &line{pool: p}}
	k := w.nodeKind(h.dial(t).Client)
	k.session = s
	return k
}

// withHostile returns a provider of two clusters: the factory, and the harbour, whose API server is
// hostile.
func withHostile(t *testing.T, h *hostile) (*world, *fakeCluster) {
	w, c := newWorld(t), newFakeCluster("factory")
	w.manager.Source = sourceOf(func(ctx context.Context, k flexnode.Cluster) (Access, error) {
		if keyOf(k.ID) == factory {
			return w.source.Access(ctx, k, false)
		}
		config, err := plainConfig([]byte(h.config))
		return Access{Config: config, Local: true, Fingerprint: "harbour"}, err
	})
	w.manager.Dial = func(a Access) (*Connection, error) {
		if a.Config != nil {
			return Dial(a)
		}
		return w.source.dial(a)
	}
	w.source.point(factory, c)
	for _, id := range []string{factoryID, harbourID} {
		w.change(func(v *store.View) error {
			return w.store.Clusters.Put(v, keyOf(id), flexnode.Cluster{ID: id, Version: "1",
				UID: uuid.NewString(), Location: "westeurope", Properties: flexnode.ClusterProperties{
					PodCIDR: "10.244.0.0/16", NodeCIDRMask: 24}})
		})
		w.own(keyOf(id))
	}
	return w, c
}

// until waits for a condition that holds soon.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}
