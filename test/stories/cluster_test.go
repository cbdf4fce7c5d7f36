//go:debug tlsmlkem=0

package stories

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
)

// cluster is a small real API server over TLS, with nodes, their leases, tokens and client
// certificates, and nothing more.
type cluster struct {
	*httptest.Server
	network *memory
	caPEM   []byte
	token   string
	// uid is the UID of the Service default/kubernetes.
	uid string

	mu    sync.Mutex
	nodes map[string]*corev1.Node
	// reads counts how often a Node was read.
	reads int
	// dials counts the connection attempts.
	dials int
	// noServices: no program makes Services work on the machine.
	noServices bool
	// refusals counts the connections to Services that fail before the first success; connections
	// counts all.
	refusals, connections int
	// stuck is set if no Node can be uncordoned.
	stuck bool
	// ready reports whether the machine behind a node would report itself Ready now.
	ready func(name string) bool
	// running returns when kubelet started; the zero time if it does not run.
	running func() time.Time
	// noCIDR makes the cluster allocate no pod subnets, podCIDRs these instead of its own one.
	noCIDR   bool
	podCIDRs []string
	// keep forbids nodes to delete themselves.
	keep bool
	// down makes it refuse connections; refused makes it accept no credential.
	down, refused bool
	// touched is called for each request that changes something, before the change, with the
	// request's context; done is called after it, before the answer.
	touched func(ctx context.Context) (done func())
	// azure, if set, decides whose a token is and which rights it has.
	azure  *azuresim.Sim
	issuer string // the origin of azure
	// programs holds the real paths of the programs that kubelet calls by the path of an archived
	// machine.
	programs map[string]string
	// kubelets stops the kubelets that still try to connect.
	kubelets context.Context
	// deletions wakes the watches.
	deletions chan struct{}
	version   string
	behaviour
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{
		token: "abcdef.0123456789abcdef", nodes: map[string]*corev1.Node{}, network: newMemory(),
		uid: "00000000-0000-0000-0000-00000000c1c1", version: "v1.35.4",
		touched:   func(context.Context) func() { return func() {} },
		deletions: make(chan struct{}), behaviour: behaviour{at: address},
	}
	c.kubelets = t.Context()
	c.Server = httptest.NewUnstartedServer(c.routes())
	c.Listener, c.TLS = c.network, &tls.Config{
		Certificates: []tls.Certificate{serving()},
		ClientAuth:   tls.RequestClientCert, GetConfigForClient: c.shows, // as an API server does
	}
	c.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		caller := conn.(*tls.Conn).NetConn().(*buffered).caller
		return context.WithValue(ctx, callerKey{}, caller)
	}
	c.StartTLS()
	t.Cleanup(func() {
		// Closing the test's server would wait for requests of processes that were killed.
		_ = c.Config.Close()
		_ = c.network.Close()
	})
	c.caPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw})
	return c
}

// serving is the certificate of all servers here, and its own CA. httptest's has an RSA key, with
// which a handshake takes much longer; the machines of the stories make thousands.
var serving = sync.OnceValue(func() tls.Certificate {
	cert, key := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(0, 0).AddDate(100, 0, 0),
		DNSNames: []string{"example.com"}, IPAddresses: []net.IP{net.ParseIP("127.0.0.1")},
	}, nil, nil)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
})

// dial connects the agent to the cluster.
func (c *cluster) dial(ctx context.Context, _, where string) (net.Conn, error) {
	c.mu.Lock()
	c.dials++
	down, known := c.down, where == c.at
	c.mu.Unlock()
	if !down && c.serves(where) {
		here, there := net.Pipe()
		return here, there.Close()
	}
	if host, _, _ := net.SplitHostPort(where); !known && net.ParseIP(host) == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if down || !known {
		return nil, &net.OpError{
			Op: "dial", Net: "tcp", Addr: addr(where), Err: syscall.ECONNREFUSED,
		}
	}
	return c.network.dial(ctx)
}

// serves reports whether a Service answers at an address, from any machine.
func (c *cluster) serves(where string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if where != "10.0.0.1:443" && where != "10.0.0.10:53" {
		return false
	}
	c.connections++
	if c.refusals > 0 {
		c.refusals--
		return false
	}
	return !c.noServices
}

// set changes the cluster's behaviour between two requests.
func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *cluster) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		version := c.version
		c.mu.Unlock()
		reply(w, map[string]string{"major": "1", "minor": "35", "gitVersion": version})
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", c.review)
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/selfsubjectreviews", c.whoAmI)
	mux.HandleFunc("GET /api/v1/namespaces/default/services/kubernetes", c.service)
	mux.HandleFunc("GET /api/v1/namespaces/kube-system/services/kube-dns", c.dns)
	mux.HandleFunc(
		"GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}", c.lease,
	)
	mux.HandleFunc("GET /api/v1/nodes", c.watch)
	mux.HandleFunc("GET /api/v1/nodes/{name}", c.node)
	mux.HandleFunc("POST /api/v1/nodes", c.changing(c.create))
	mux.HandleFunc("PATCH /api/v1/nodes/{name}", c.changing(c.patch))
	mux.HandleFunc("DELETE /api/v1/nodes/{name}", c.changing(c.delete))
	mux.HandleFunc("GET /api/v1/pods", c.listPods)
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/pods/{name}/eviction", c.changing(c.evict))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A client certificate would need a handshake of its own; a client without a token is a
		// node here.
		auth := r.Header.Get("Authorization")
		known := auth == "" || auth == "Bearer "+c.token || c.identity(r) != ""
		c.mu.Lock()
		refused, ahead, ill := c.refused, c.ahead, c.ill
		c.mu.Unlock()
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		if !known || refused {
			fail(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
			return
		}
		if ill != nil {
			if code := ill(r); code != 0 {
				fail(w, code, metav1.StatusReasonUnknown)
				return
			}
		}
		mux.ServeHTTP(w, r)
	})
}

// changing reports a request that changes something, before it is done and before it is answered.
func (c *cluster) changing(do http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		done := c.touched(r.Context())
		answer := httptest.NewRecorder()
		do(answer, r)
		done()
		c.touched(r.Context())()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(answer.Code)
		_, _ = answer.Body.WriteTo(w) // a client that is gone
	}
}

func (c *cluster) whoAmI(w http.ResponseWriter, r *http.Request) {
	review := authenticationv1.SelfSubjectReview{
		TypeMeta: metav1.TypeMeta{
			Kind: "SelfSubjectReview", APIVersion: "authentication.k8s.io/v1",
		},
	}
	if c.saysNothing(w) {
		return
	}
	review.Status.UserInfo.Username = "system:node:edge-1"
	if oid := c.identity(r); oid != "" {
		review.Status.UserInfo.Username = oid
	}
	reply(w, review)
}

func (c *cluster) service(w http.ResponseWriter, _ *http.Request) {
	reply(w, corev1.Service{
		TypeMeta: metav1.TypeMeta{Kind: "Service", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "kubernetes", Namespace: "default", UID: types.UID(c.uid),
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 443}},
		},
	})
}

// dns serves the cluster's DNS Service.
func (c *cluster) dns(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.secretive {
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
		return
	}
	reply(w, corev1.Service{
		TypeMeta:   metav1.TypeMeta{Kind: "Service", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "kube-dns", Namespace: "kube-system"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.0.0.10"},
	})
}

// identity returns the owner of the Azure token in a request; "" if it has no valid one.
func (c *cluster) identity(r *http.Request) string {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || c.azure == nil {
		return ""
	}
	oid, err := c.azure.Verify(c.issuer, token, azuresim.AKSServer)
	if err != nil || c.stranger(oid) {
		return ""
	}
	return oid
}

// may reports whether Azure's role assignments allow an identity an action.
func (c *cluster) may(oid, action string) bool {
	return oid != "" &&
		c.azure.Allowed(oid, "Microsoft.ContainerService/managedClusters/"+action, clusterID, true)
}

func (c *cluster) review(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SelfSubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	oid, what := c.identity(r), review.Spec.ResourceAttributes.Resource
	review.Status.Allowed = c.may(oid, what+"/write") || c.bootstraps(oid, what)
	reply(w, review)
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		panic(err)
	}
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
		Reason: reason, Code: int32(code),
	}
	if err := json.NewEncoder(w).Encode(status); err != nil {
		panic(err)
	}
}
