package cluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Connection holds the clients of one cluster for one access. It is immutable: another access makes
// another one, and everything that runs on the old one ends.
type Connection struct {
	// Client has no limit and no timeout of its own, since machines wait for its answers and a watch
	// has no end: requests have a timeout in their contexts.
	Client kubernetes.Interface
	// ServerURL and CA (PEM) are given to nodes.
	ServerURL string
	CA        []byte
	// Version returns the API server's version; nil uses Client. Fakes of client-go cannot.
	Version func(ctx context.Context) (string, error)

	access Access // that the clients are for
	made   time.Time
	// registration is the uid of the registration that it was made for. A later one of the same name
	// may be of another cluster.
	registration string
	wire         *wire // nil for fakes of client-go
}

// doubtful reports whether the API server has refused the credentials, or has shown an unexpected
// certificate.
func (c *Connection) doubtful() bool { return c.wire != nil && c.wire.doubtful.Load() }

// server returns an identifier of the API server with this uid. It covers the CA that signed its
// certificate, or the CA or URL of the access, since the uid of another API server is no secret.
func (c *Connection) server(uid string) string {
	proved := cmp.Or(string(c.CA), c.ServerURL)
	if c.wire != nil {
		if root := c.wire.root.Load(); root != nil {
			proved = *root
		}
	}
	return fmt.Sprintf("%.16x", sha256.Sum256([]byte(proved+"\n"+uid)))
}

// requestTimeout limits one request to a cluster, but not a watch.
const requestTimeout = 10 * time.Second

// effectTimeout limits one request that changes something in a cluster. It ends before another
// replica can own the cluster. A request that was cut short may have succeeded: a retry finds that.
const effectTimeout = store.OwnerMargin

// Dial returns the clients of an access. It makes no request.
func Dial(a Access) (*Connection, error) {
	base := rest.CopyConfig(a.Config)
	base.UserAgent = "flexnode-rp"
	// Typed clients prefer protobuf, whose size in memory cannot be limited while it is read.
	base.ContentType, base.AcceptContentTypes = "application/json", "application/json"
	if base.TLSClientConfig.CAFile != "" || base.BearerTokenFile != "" || base.ExecProvider != nil {
		return nil, errors.New("internal error: an access that names files or a program")
	}
	trust, err := rest.TLSConfigFor(a.Config)
	if err != nil {
		return nil, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	dialer := &net.Dialer{Timeout: requestTimeout, KeepAlive: 30 * time.Second}
	if !a.Local {
		dialer.ControlContext = refuseLocal
	}
	wire := &wire{
		pace: rate.NewLimiter(answerPace, answerBurst),
		next: utilnet.SetTransportDefaults(&http.Transport{
			DialContext: dialer.DialContext, TLSClientConfig: trust, Proxy: a.Config.Proxy,
			DisableCompression: true, MaxResponseHeaderBytes: maxHeader, TLSHandshakeTimeout: requestTimeout,
		}),
	}
	transport, err := rest.HTTPWrappersForConfig(base, wire)
	if err != nil {
		return nil, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	base.QPS = -1
	client, err := kubernetes.NewForConfigAndClient(base, &http.Client{Transport: transport})
	if err != nil {
		return nil, fmt.Errorf("cannot use the kubeconfig: %w", err)
	}
	return &Connection{Client: client, ServerURL: base.Host, CA: base.CAData, wire: wire}, nil
}

// The limits of an API server's answers. Its owner controls it, and the provider serves others too.
var (
	versionLimit = limits{bytes: 64 << 10, values: 4 << 10} // and answers that are errors
	objectLimit  = limits{bytes: 4 << 20, values: 256 << 10}
	pageLimit    = limits{bytes: 16 << 20, values: 1 << 20, items: pageItems + 20}
	eventLimit   = limits{bytes: 2 << 20, values: 128 << 10, stream: true}
)

const (
	// pageItems is the size of a page of a list.
	pageItems = 500
	// answerPace limits the bytes per second of all answers of a cluster. answerBurst is enough to
	// list the Nodes of a large cluster at once.
	answerPace, answerBurst = 8 << 20, 64 << 20
	// maxHeader limits the header of an answer.
	maxHeader = 64 << 10
	// readSize limits one read.
	readSize = 32 << 10
)

// errHarm is the error for answers that no API server gives, or that are too large.
var errHarm = errors.New("the cluster answers more than the provider accepts")

// wire sends every request to one cluster and limits the answers.
type wire struct {
	next     http.RoundTripper
	pace     *rate.Limiter
	doubtful atomic.Bool            // the last credentials or certificates were refused
	root     atomic.Pointer[string] // the key of the CA that signed the API server's certificate
}

// refuseLocal refuses connections to loopback, link-local and the provider's own addresses. It
// checks the address that a name has resolved to.
func refuseLocal(_ context.Context, _, address string, _ syscall.RawConn) error {
	to, _ := netip.ParseAddrPort(address) // package net passes one; the zero address is refused
	ip := to.Addr().Unmap().WithZone("")
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("cannot list the provider's own addresses: %w", err)
	}
	isOwn := slices.ContainsFunc(own, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap().WithZone("") == ip
	})
	if isOwn || !ip.IsGlobalUnicast() {
		return fmt.Errorf("%w: %s", errLocal, ip)
	}
	return nil
}

// errLocal is the error for an API server at an address of the provider's own.
var errLocal = errors.New("the address is the provider's own or a local one; the operator allows " +
	"it with local in the cluster's binding, or azure.allowLocalClusters without one")

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := w.next.RoundTrip(r)
	if err != nil {
		_, theirs := errors.AsType[*tls.CertificateVerificationError](err)
		if _, ours := errors.AsType[tls.AlertError](err); theirs || ours {
			w.doubtful.Store(true)
		}
		return nil, err
	}
	w.doubtful.Store(response.StatusCode == http.StatusUnauthorized)
	if t := response.TLS; t != nil && len(t.VerifiedChains) > 0 {
		chain := t.VerifiedChains[0]
		w.root.Store(new(fmt.Sprintf("%x", sha256.Sum256(chain[len(chain)-1].RawSubjectPublicKeyInfo))))
	}
	if why := unfit(response); why != "" {
		response.Body.Close()
		return nil, fmt.Errorf("%w: %s", errHarm, why)
	}
	response.Body = &bounded{ReadCloser: response.Body, ctx: r.Context(), pace: w.pace,
		shape: shape{limits: limitsOf(r, response)}}
	return response, nil
}

// unfit returns the reason to refuse the header of an answer; "" to accept it.
func unfit(r *http.Response) string {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case r.StatusCode < http.StatusOK || r.StatusCode/100 == 3:
		return "it redirects to another place"
	case r.Header.Get("Content-Encoding") != "":
		return "its answer is compressed"
	case r.StatusCode < http.StatusMultipleChoices && kind != "" && kind != "application/json":
		return "its answer is not JSON"
	}
	return ""
}

func limitsOf(r *http.Request, answer *http.Response) limits {
	q := r.URL.Query()
	switch {
	case answer.StatusCode >= http.StatusMultipleChoices,
		strings.HasSuffix(r.URL.Path, "/version") && !strings.Contains(r.URL.Path, "/api"):
		return versionLimit
	case q.Has("watch"):
		return eventLimit
	case q.Has("limit"):
		return pageLimit
	}
	return objectLimit
}

// bounded is the body of an answer with its limits.
type bounded struct {
	io.ReadCloser
	ctx   context.Context // of the request
	pace  *rate.Limiter
	shape shape
	err   error
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), readSize)])
	if b.err = b.shape.see(p[:n]); b.err == nil && n > 0 {
		b.err = b.pace.WaitN(b.ctx, n)
	}
	if b.err != nil {
		return 0, b.err
	}
	return n, err
}

// limits bounds a JSON value: its bytes, the values in it, and the items of its top-level lists,
// since a small item takes much memory when it is decoded. 0 items is unlimited.
type limits struct {
	bytes, values, items int
	stream               bool // the limits hold for each value of a stream
}

// maxDepth limits the nesting of objects and lists.
const maxDepth = 100

// shape counts the parts of JSON while it is read.
type shape struct {
	limits                      limits
	inText, escaped             bool
	depth, bytes, values, items int
}

// see counts the next bytes. It returns an error above a limit.
func (s *shape) see(p []byte) error {
	for _, b := range p {
		s.bytes++
		switch {
		case s.escaped:
			s.escaped = false
		case s.inText:
			s.escaped, s.inText = b == '\\', b != '"'
		case b == '"':
			s.inText = true
		case b == '{' || b == '[':
			s.depth++
			s.values++
		case b == ',':
			s.values++
			if s.depth == 2 {
				s.items++
			}
		case b == '}' || b == ']':
			if s.depth--; s.depth == 0 && s.limits.stream {
				*s = shape{limits: s.limits}
			}
		}
		if s.bytes > s.limits.bytes || s.values > s.limits.values || s.depth > maxDepth ||
			s.limits.items > 0 && s.items > s.limits.items {
			return fmt.Errorf("%w: one answer is more than %d KiB, %d values or %d items", errHarm,
				s.limits.bytes>>10, s.limits.values, s.limits.items)
		}
	}
	return nil
}
