package lab

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The number of a provider's simulated target clusters: nine have no Nodes, and the mode in a file
// decides what the tenth does.
const neighbours = 10

// The modes of the tenth API server. A loud one has Nodes and sends valid events about them at a
// fixed rate. A hostile one sends invalid responses, of another kind in each session.
const (
	quietMode   = "quiet"
	loudMode    = "loud"
	hostileMode = "hostile"
)

func neighbourURL(i int) string { return fmt.Sprintf("https://%s:%d", HostIP, 9500+i) }

// neighbourID returns the id of a cluster; the tenth is in a tenant's subscription.
func neighbourID(i int) string {
	group := groupID
	if i == neighbours-1 {
		group = "/subscriptions/" + tenantSubscription + "/resourceGroups/tenant"
	}
	return group + "/providers/Microsoft.ContainerService/managedClusters/neighbour-" +
		strconv.Itoa(i)
}

// sentPath is the path at which the tenth returns how many bytes it has sent.
const sentPath = "/sent"

func (l *Lab) modeFile() string { return l.path("neighbour-mode") }

// setMode sets the mode of the tenth API server, and the rate of a loud one in bytes per second.
func (l *Lab) setMode(mode string, rate int) error {
	path := l.modeFile()
	if err := os.WriteFile(path+".new", fmt.Appendf(nil, "%s %d", mode, rate), 0o600); err != nil {
		return fmt.Errorf("cannot write the mode of a simulated API server: %w", err)
	}
	return os.Rename(path+".new", path)
}

// ServeNeighbours serves the simulated API servers until ctx ends.
func (l *Lab) ServeNeighbours(ctx context.Context) error {
	certificate, err := tls.LoadX509KeyPair(l.path("pki", "apiserver.crt"),
		l.path("pki", "apiserver.key"))
	if err != nil {
		return fmt.Errorf("cannot read the PKI: %w", err)
	}
	tenth := &neighbour{uid: "9", mode: l.modeFile(), bomb: packedBomb()}
	ended := make(chan error, neighbours)
	for i := range neighbours {
		var handler http.Handler = polite(strconv.Itoa(i))
		if i == neighbours-1 {
			handler = tenth
		}
		server := &http.Server{Addr: strings.TrimPrefix(neighbourURL(i), "https://"),
			Handler: handler, ErrorLog: log.New(io.Discard, "", 0),
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}}
		go func() { ended <- server.ListenAndServeTLS("", "") }()
		defer server.Close()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

// polite responds like the API server of a cluster without Nodes; its value determines its uid.
type polite string

func (p polite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Query().Has("watch"):
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case r.URL.Path == "/version":
		fmt.Fprint(w, `{"gitVersion":"v1.36.3"}`)
	case r.URL.Path == "/api/v1/namespaces/default/services/kubernetes":
		fmt.Fprintf(w, `{"kind":"Service","apiVersion":"v1","metadata":{"uid":"neighbour-%s"}}`, p)
	case strings.HasSuffix(r.URL.Path, "/services/kube-dns"):
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","code":404,"reason":"NotFound"}`)
	case r.URL.Path == nodesPath:
		fmt.Fprint(w, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"}}`)
	case strings.HasSuffix(r.URL.Path, "/secrets"):
		fmt.Fprint(w, `{"kind":"SecretList","apiVersion":"v1"}`)
	case r.URL.Path == requestsPath:
		fmt.Fprint(w, `{"kind":"CertificateSigningRequestList",`+
			`"apiVersion":"certificates.k8s.io/v1","metadata":{"resourceVersion":"1"}}`)
	default:
		fmt.Fprint(w, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1"}`)
	}
}

const (
	nodesPath    = "/api/v1/nodes"
	requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
)

// neighbour is the tenth API server.
type neighbour struct {
	uid  string
	mode string // a file
	bomb []byte

	sessions, sent atomic.Int64
}

// meter counts sent bytes, before TLS.
type meter struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c meter) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

func (c meter) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

func (n *neighbour) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == sentPath {
		fmt.Fprint(w, n.sent.Load())
		return
	}
	text, _ := os.ReadFile(n.mode) // a missing file means quiet
	mode, rate, _ := strings.Cut(string(text), " ")
	out := meter{w, &n.sent}
	switch mode {
	case hostileMode:
		n.harm(out, r)
	case loudMode:
		bytes, _ := strconv.Atoi(rate) // 0 sends no events
		n.loud(out, r, bytes)
	default:
		polite(n.uid).ServeHTTP(out, r)
	}
}

// loudNodes is small, so that most of the sent bytes are events.
const loudNodes = 1_000

// loud lists Nodes in pages, and then sends events about one after another.
func (n *neighbour) loud(w meter, r *http.Request, rate int) {
	query := r.URL.Query()
	switch {
	case r.URL.Path != nodesPath:
		polite(n.uid).ServeHTTP(w, r)
	case query.Has("watch"):
		w.Header().Set("Content-Type", "application/json")
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; {
			select {
			case <-r.Context().Done():
				return
			case <-tick.C:
			}
			for size := rate / 20; size > 0; i++ {
				event := fmt.Sprintf(`{"type":"MODIFIED","object":%s}`+"\n", loudNode(i%loudNodes, i))
				size -= len(event)
				if _, err := io.WriteString(w, event); err != nil {
					return
				}
			}
			w.Flush()
		}
	default:
		w.Header().Set("Content-Type", "application/json")
		page, _ := strconv.Atoi(query.Get("continue")) // missing in the first request
		size, _ := strconv.Atoi(query.Get("limit"))
		size = min(max(size, 1), loudNodes-page)
		next := ""
		if page+size < loudNodes {
			next = strconv.Itoa(page + size)
		}
		fmt.Fprintf(w, `{"kind":"NodeList","apiVersion":"v1",`+
			`"metadata":{"resourceVersion":"1","continue":%q},"items":[`, next)
		for i := range size {
			if i > 0 {
				fmt.Fprint(w, ",")
			}
			fmt.Fprint(w, loudNode(page+i, 1))
		}
		fmt.Fprint(w, "]}")
	}
}

var loudPadding = strings.Repeat("x", 6<<10)

// loudNode returns a Node of the usual size, most of which is its list of images.
func loudNode(n, version int) string {
	return fmt.Sprintf(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"loud-%d",`+
		`"uid":"loud-%d","resourceVersion":"%d"},"status":{"images":[{"names":[%q]}],`+
		`"conditions":[{"type":"Ready","status":"True"}]}}`, n, n, version, loudPadding)
}

// harm responds like polite, except to the request that this session's harm is for.
func (n *neighbour) harm(w meter, r *http.Request) {
	if r.URL.Path == "/version" {
		n.sessions.Add(1)
	}
	harms := n.harms()
	harm := harms[int(n.sessions.Load())%len(harms)]
	watch := r.URL.Query().Has("watch")
	if r.URL.Path != harm.path || watch != harm.watch {
		polite(n.uid).ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	harm.answer(w, r)
}

type harm struct {
	path   string
	watch  bool
	answer http.HandlerFunc
}

func (n *neighbour) harms() []harm {
	const list = `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{}`
	return []harm{
		{"/version", false, endless(`{"gitVersion":"`, "0")},
		{"/version", false, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(n.bomb)
		}},
		{"/version", false, http.RedirectHandler(neighbourURL(0)+"/version",
			http.StatusTemporaryRedirect).ServeHTTP},
		{"/version", false, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{nodesPath, false, endless(list, ",{}")},
		{nodesPath, false, endless(list+`,{"metadata":{"name":"`, "0")},
		{nodesPath, false, endless(list+`,{"metadata":{"labels":{"`, "0")},
		{nodesPath, false, sixtyThousand},
		{nodesPath, true, endless("", `{"type":"ADDED","object":`+loudNode(1, 1)+"}\n")},
		{nodesPath, true, endless(`{"type":"ADDED","object":{"a":"`, "0")},
		{requestsPath, false, endless(`{"kind":"CertificateSigningRequestList",`+
			`"apiVersion":"certificates.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[{}`,
			`,{"metadata":{"name":"r"},"spec":{"signerName":"kubernetes.io/kube-apiserver-client-kubelet",`+
				`"request":"`+strings.Repeat("QUFB", 4<<10)+`"}}`)},
	}
}

// endless writes a text, and then another one repeatedly until the connection ends.
func endless(head, again string) http.HandlerFunc {
	again = strings.Repeat(again, 1+(64<<10)/len(again))
	return func(w http.ResponseWriter, r *http.Request) {
		_, err := io.WriteString(w, head)
		for err == nil && r.Context().Err() == nil {
			_, err = io.WriteString(w, again)
		}
	}
}

// sixtyThousand lists three times as many Nodes as a registration may have.
func sixtyThousand(w http.ResponseWriter, r *http.Request) {
	page, _ := strconv.Atoi(r.URL.Query().Get("continue")) // missing in the first request
	next := ""
	if page < 60_000/500-1 {
		next = strconv.Itoa(page + 1)
	}
	fmt.Fprintf(w, `{"kind":"NodeList","apiVersion":"v1",`+
		`"metadata":{"resourceVersion":"1","continue":%q},"items":[{"metadata":{"name":"n-%d-0"}}`,
		next, page)
	for i := range 499 {
		fmt.Fprintf(w, `,{"metadata":{"name":"n-%d-%d"}}`, page, i+1)
	}
	fmt.Fprint(w, "]}")
}

// packedBomb returns a few bytes that decompress to 256 MiB of JSON.
var packedBomb = sync.OnceValue(func() []byte {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, `{"gitVersion":"`) // a buffer accepts everything
	zeros := bytes.Repeat([]byte("0"), 1<<20)
	for range 1 << 8 {
		_, _ = z.Write(zeros)
	}
	_ = z.Close()
	return packed.Bytes()
})
