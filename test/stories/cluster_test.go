package stories

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
)

// cluster is a small real API server over TLS: it knows nodes, tokens and client certificates, and no more.
type cluster struct {
	*httptest.Server
	ca    *x509.Certificate
	caKey *ecdsa.PrivateKey
	caPEM []byte
	token string

	mu    sync.Mutex
	nodes map[string]*corev1.Node
	// ready tells whether the machine behind a node would report itself Ready now.
	ready func(name string) bool
	// noCIDR makes the cluster allocate no pod subnets.
	noCIDR bool
	// keep forbids nodes to delete themselves.
	keep bool
	// azure, if there is one, says whose a token is and what they may do.
	azure  *azuresim.Sim
	issuer string // the origin of azure
	// kubelets ends those that still try to get in.
	kubelets context.Context
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{token: "abcdef.0123456789abcdef", nodes: map[string]*corev1.Node{}}
	c.kubelets = t.Context()
	c.Server = httptest.NewUnstartedServer(c.routes())
	c.StartTLS()
	t.Cleanup(c.Close)
	var err error
	if c.caKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	c.ca = c.Certificate()
	c.caPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.ca.Raw})
	return c
}

func (c *cluster) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]string{"major": "1", "minor": "35", "gitVersion": "v1.35.4"})
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", c.review)
	mux.HandleFunc("GET /api/v1/nodes/{name}", c.node)
	mux.HandleFunc("PATCH /api/v1/nodes/{name}", c.patch)
	mux.HandleFunc("DELETE /api/v1/nodes/{name}", c.delete)
	mux.HandleFunc("GET /api/v1/pods", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A client certificate would need a handshake of its own; whoever sends no token is a node here.
		if auth := r.Header.Get("Authorization"); auth != "" && auth != "Bearer "+c.token && c.identity(r) == "" {
			fail(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// identity is whose token of Azure a request has; "" when it has none that is good.
func (c *cluster) identity(r *http.Request) string {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || c.azure == nil {
		return ""
	}
	oid, err := c.azure.Verify(c.issuer, token, azuresim.AKSServer)
	if err != nil {
		return ""
	}
	return oid
}

// may tells what Azure's role assignments let an identity do.
func (c *cluster) may(oid, action string) bool {
	return oid != "" && c.azure.Allowed(oid, "Microsoft.ContainerService/managedClusters/"+action, clusterID, true)
}

func (c *cluster) review(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SelfSubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	review.Status.Allowed = c.may(c.identity(r), review.Spec.ResourceAttributes.Resource+"/write")
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
	status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Code: int32(code)}
	if err := json.NewEncoder(w).Encode(status); err != nil {
		panic(err)
	}
}

func (c *cluster) node(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
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
	shown.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastHeartbeatTime: metav1.Now(), Message: "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"}}
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
		Spec     struct{ Unschedulable *bool }
	}
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	for key, value := range patch.Metadata.Labels {
		if value == nil {
			delete(n.Labels, key)
		} else {
			n.Labels[key] = *value
		}
	}
	if patch.Spec.Unschedulable != nil {
		n.Spec.Unschedulable = *patch.Spec.Unschedulable
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
	delete(c.nodes, r.PathValue("name"))
	reply(w, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"})
}

// has tells whether the cluster has a node.
func (c *cluster) has(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name] != nil
}

// register is what a kubelet does when it starts: with the token it gets a certificate, with the certificate it registers.
func (c *cluster) register(root, unit string) error {
	dir := filepath.Join(root, "/var/lib/kubelet")
	name := flag(unit, "--hostname-override=")
	if kubeconfig, err := os.ReadFile(filepath.Join(dir, "kubeconfig")); err == nil && strings.Contains(string(kubeconfig), "exec:") {
		go c.admit(kubeconfig, name, unit)
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
	c.add(name, unit)
	return nil
}

// admit is a kubelet that shows tokens: it tries until it is let in.
func (c *cluster) admit(kubeconfig []byte, name, unit string) {
	_, rest, _ := strings.Cut(string(kubeconfig), "command: ")
	command, _, _ := strings.Cut(rest, "\n")
	for c.kubelets.Err() == nil {
		out, err := exec.CommandContext(c.kubelets, command, "token").Output()
		var credential struct{ Status struct{ Token string } }
		if err == nil && json.Unmarshal(out, &credential) == nil {
			if oid, err := c.azure.Verify(c.issuer, credential.Status.Token, azuresim.AKSServer); err == nil && c.may(oid, "nodes/write") {
				c.add(name, unit)
				return
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// add registers a node.
func (c *cluster) add(name, unit string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[name] == nil {
		labels := map[string]string{}
		for _, pair := range strings.Split(flag(unit, "--node-labels="), ",") {
			key, value, _ := strings.Cut(pair, "=")
			labels[key] = value
		}
		c.nodes[name] = &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if !c.noCIDR {
			c.nodes[name].Spec.PodCIDR = "10.244.7.0/24"
		}
	}
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
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}},
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
	body := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})...)
	if err := os.WriteFile(current, body, 0o600); err != nil {
		return err
	}
	kubeconfig := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\n"+
		"users: [{name: u, user: {client-certificate: %q, client-key: %q}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n",
		c.URL, base64.StdEncoding.EncodeToString(c.caPEM), current, current)
	return os.WriteFile(filepath.Join(dir, "kubeconfig"), []byte(kubeconfig), 0o600)
}
