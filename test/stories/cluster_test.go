package stories

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
)

// cluster is a small real API server over TLS: it knows nodes, their leases, tokens and client
// certificates, and no more.
type cluster struct {
	*httptest.Server
	network *memory
	ca      *x509.Certificate
	caKey   *ecdsa.PrivateKey
	caPEM   []byte
	token   string
	// uid is that of the Service default/kubernetes.
	uid string

	mu    sync.Mutex
	nodes map[string]*corev1.Node
	// reads counts how often a Node was read.
	reads int
	// noServices: nobody makes Services work on the machine.
	noServices bool
	// refusals is how many connections to Services fail before they work; connections counts all.
	refusals, connections int
	// ready tells whether the machine behind a node would report itself Ready now.
	ready func(name string) bool
	// running tells since when kubelet runs; the zero time when it does not.
	running func() time.Time
	// noCIDR makes the cluster allocate no pod subnets, podCIDRs those instead of its own one.
	noCIDR   bool
	podCIDRs []string
	// keep forbids nodes to delete themselves.
	keep bool
	// down makes it refuse connections; refused makes it accept no credential.
	down, refused bool
	// touched is told of each request that changes something, before it is done, with the request's
	// context, and again before it is answered; done is called when that has been done.
	touched func(ctx context.Context) (done func())
	// azure, if there is one, says whose a token is and what they may do.
	azure  *azuresim.Sim
	issuer string // the origin of azure
	// programs are where programs are in truth that kubelet calls by the path of an archived
	// machine.
	programs map[string]string
	// kubelets ends those that still try to get in.
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
	c.Listener, c.TLS = c.network, &tls.Config{GetConfigForClient: c.shows}
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
	var err error
	if c.caKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	c.ca = c.Certificate()
	c.caPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.ca.Raw})
	return c
}

// dial is how the agent reaches the cluster.
func (c *cluster) dial(ctx context.Context, _, where string) (net.Conn, error) {
	c.mu.Lock()
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

// serves tells whether a Service answers at an address, from any machine.
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

// set changes what the cluster does, between two requests.
func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *cluster) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]string{"major": "1", "minor": "35", "gitVersion": c.version})
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
		// A client certificate would need a handshake of its own; whoever sends no token is a node
		// here.
		auth := r.Header.Get("Authorization")
		known := auth == "" || auth == "Bearer "+c.token || c.identity(r) != ""
		c.mu.Lock()
		refused, ahead := c.refused, c.ahead
		c.mu.Unlock()
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		if !known || refused {
			fail(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// changing tells of a request that changes something, before it is done and before it is answered.
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

// dns is the cluster's DNS Service.
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

// lease is renewed by the kubelet that runs.
func (c *cluster) lease(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	lease := coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-node-lease"},
	}
	seconds, at := int32(40), metav1.NewMicroTime(time.Now())
	if c.running().IsZero() || c.lapses() {
		at = metav1.NewMicroTime(time.Now().Add(-time.Hour))
	}
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &at,
	}
	reply(w, lease)
}

// watch tells of deletions.
func (c *cluster) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	c.mu.Lock()
	deletions := c.deletions
	c.mu.Unlock()
	ends, err := time.ParseDuration(r.URL.Query().Get("timeoutSeconds") + "s")
	if err != nil {
		panic(err)
	}
	end := time.NewTimer(ends)
	defer end.Stop()
	select {
	case <-deletions:
		_, _ = io.WriteString(
			w, `{"type":"DELETED","object":{"kind":"Node","apiVersion":"v1"}}`+"\n",
		)
	case <-end.C:
	case <-r.Context().Done():
	}
}

// create registers a node as the agent does for one that was deleted.
func (c *cluster) create(w http.ResponseWriter, r *http.Request) {
	var n corev1.Node
	if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[n.Name] != nil {
		fail(w, http.StatusConflict, metav1.StatusReasonAlreadyExists)
		return
	}
	c.nodes[n.Name] = &n
	reply(w, n)
}

// identity is whose token of Azure a request has; "" when it has none that is good.
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

// may tells what Azure's role assignments let an identity do.
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

func (c *cluster) node(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	n, ok := c.nodes[r.PathValue("name")]
	if !ok {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	status := corev1.ConditionFalse
	if c.ready(n.Name) {
		status = corev1.ConditionTrue
	}
	shown := n.DeepCopy()
	shown.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: status, LastHeartbeatTime: metav1.Now(),
		Message: "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady",
	}}
	reply(w, shown)
}

func (c *cluster) patch(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.nodes[r.PathValue("name")]
	if !ok {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	var patch struct {
		Metadata struct{ Labels map[string]*string }
		Spec     map[string]any
	}
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	if c.unlabelled && len(patch.Metadata.Labels) > 0 {
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
		return
	}
	for key, value := range patch.Metadata.Labels {
		if value == nil {
			delete(n.Labels, key)
		} else {
			n.Labels[key] = *value
		}
	}
	if cordon, ok := patch.Spec["unschedulable"]; ok {
		n.Spec.Unschedulable = cordon == true // null takes it away
	}
	reply(w, n)
}

func (c *cluster) delete(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keep {
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
		return
	}
	c.remove(r.PathValue("name"))
	reply(
		w,
		metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success",
		},
	)
}

// remove deletes a node and wakes the watches; c.mu is held.
func (c *cluster) remove(name string) {
	delete(c.nodes, name)
	close(c.deletions)
	c.deletions = make(chan struct{})
}

// has tells whether the cluster has a node.
func (c *cluster) has(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name] != nil
}

// register is what a kubelet does when it starts: with the token it gets a certificate, with the
// certificate it registers.
func (c *cluster) register(root, unit string, info corev1.NodeSystemInfo) error {
	dir := filepath.Join(root, "/var/lib/kubelet")
	name := nodeName(root, unit)
	if err := delayShutdown(root); err != nil {
		return err
	}
	if kubeconfig, err := os.ReadFile(filepath.Join(dir, "kubeconfig")); err == nil &&
		strings.Contains(string(kubeconfig), "exec:") {
		go c.admit(root, kubeconfig, name, info)
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, "kubeconfig")); err != nil {
		token, err := os.ReadFile(filepath.Join(dir, "bootstrap-kubeconfig"))
		if err != nil {
			return fmt.Errorf("kubelet has no credential: %w", err)
		}
		if !strings.Contains(string(token), c.token) && !strings.Contains(string(token), "exec:") {
			return nil // kubelet runs on and is refused
		}
		if err := c.certify(dir, name); err != nil {
			return err
		}
	}
	c.add(root, name, info)
	return nil
}

// admit is a kubelet that shows tokens: it tries until it is let in.
func (c *cluster) admit(root string, kubeconfig []byte, name string, info corev1.NodeSystemInfo) {
	_, rest, _ := strings.Cut(string(kubeconfig), "command: ")
	command, _, _ := strings.Cut(rest, "\n")
	if at := c.programs[command]; at != "" {
		command = at
	}
	c.mu.Lock()
	deleted := c.deletions
	c.mu.Unlock()
	for c.kubelets.Err() == nil {
		out, err := exec.CommandContext(c.kubelets, command, "token").Output()
		var credential struct{ Status struct{ Token string } }
		if err == nil && json.Unmarshal(out, &credential) == nil {
			oid, err := c.azure.Verify(c.issuer, credential.Status.Token, azuresim.AKSServer)
			if err == nil && c.may(oid, "nodes/write") {
				select {
				case <-deleted: // that kubelet had registered before
				default:
					c.add(root, name, info)
				}
				return
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// add registers a node, or finds it registered, and reports what runs.
func (c *cluster) add(root, name string, info corev1.NodeSystemInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[name] == nil {
		labels := map[string]string{}
		text, _ := os.ReadFile(
			filepath.Join(root, "/etc/kubernetes/aks-flex-node-registration.env"),
		)
		for _, pair := range strings.Split(flag(string(text), "--node-labels="), ",") {
			key, value, _ := strings.Cut(strings.Trim(pair, `"`), "=")
			if key != "" {
				labels[key] = value
			}
		}
		c.nodes[name] = &corev1.Node{
			TypeMeta:   metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		}
	}
	n := c.nodes[name]
	if !c.noCIDR && n.Spec.PodCIDR == "" {
		n.Spec.PodCIDR = "10.244.7.0/24"
		if len(c.podCIDRs) > 0 {
			n.Spec.PodCIDR, n.Spec.PodCIDRs = c.podCIDRs[0], c.podCIDRs
		}
	}
	n.Status.NodeInfo = info
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	n.Status.Capacity = corev1.ResourceList{corev1.ResourcePods: resource.MustParse(maxPods(root))}
	if c.reports != nil {
		c.reports(n)
	}
}

// nodeName is the one that kubelet is told, or else the machine's.
func nodeName(root, unit string) string {
	if told := flag(unit, "--hostname-override="); told != "" {
		return told
	}
	name, _ := os.ReadFile(filepath.Join(root, "/proc/sys/kernel/hostname"))
	return strings.ToLower(strings.TrimSpace(string(name)))
}

// delayShutdown is what kubelet does where it ends pods before a shutdown: it tells logind to wait.
func delayShutdown(root string) error {
	if !strings.Contains(kubeletConfig(root), `"shutdownGracePeriod": "45s"`) {
		return nil
	}
	dir := filepath.Join(root, "/etc/systemd/logind.conf.d")
	return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "99-kubelet.conf"),
		[]byte("# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=45\n"), 0o644))
}

// kubeletConfig is the configuration that kubelet is told to read.
func kubeletConfig(root string) string {
	unit, _ := os.ReadFile(filepath.Join(root, "/etc/systemd/system/kubelet.service"))
	text, _ := os.ReadFile(filepath.Join(root, flag(string(unit), "--config=")))
	return string(text)
}

// maxPods is what kubelet's configuration says.
func maxPods(root string) string {
	_, rest, _ := strings.Cut(kubeletConfig(root), `"maxPods": `)
	value, _, ok := strings.Cut(rest, ",")
	if !ok {
		return "0"
	}
	return value
}

// flag finds a kubelet flag in its unit.
func flag(unit, name string) string {
	_, rest, _ := strings.Cut(unit, name)
	value, _, _ := strings.Cut(rest, " ")
	return strings.TrimSpace(value)
}

// certify writes what a kubelet writes once its certificate is issued.
func (c *cluster) certify(dir, name string) error {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(
			1,
		), Subject: pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, c.caKey.Public(), c.caKey)
	if err != nil {
		return err
	}
	key, err := x509.MarshalECPrivateKey(c.caKey)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "pki"), 0o755); err != nil {
		return err
	}
	current := filepath.Join(dir, "pki", "kubelet-client-current.pem")
	body := append(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})...)
	if err := os.WriteFile(current, body, 0o600); err != nil {
		return err
	}
	kubeconfig := fmt.Sprintf(
		"apiVersion: v1\nkind: Config\n"+
			"clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\n"+
			"users: [{name: u, user: {client-certificate: %q, client-key: %q}}]\n"+
			"contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n",
		c.URL,
		base64.StdEncoding.EncodeToString(c.caPEM),
		current,
		current,
	)
	return os.WriteFile(filepath.Join(dir, "kubeconfig"), []byte(kubeconfig), 0o600)
}
