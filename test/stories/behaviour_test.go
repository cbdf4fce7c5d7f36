package stories

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// behaviour holds the settings of the cluster; set changes it.
type behaviour struct {
	// at is the address of the API server. Other names do not resolve, other addresses do not
	// answer.
	at string
	// served is the certificate that it shows; nil is that of all servers.
	served *tls.Certificate
	// strangers are the identities of Azure whose tokens it does not accept.
	strangers []string
	// bootstrappers lets every identity ask for a node's certificate, as a ClusterRole does.
	bootstrappers bool
	// secretive forbids reading the address of DNS.
	secretive bool
	// silent forbids asking for the caller's identity.
	silent bool
	// lapsed is set if kubelet does not renew its lease.
	lapsed bool
	// heartbeat returns the time of kubelet's last heartbeat in the Node and its lease; nil is now.
	heartbeat func() time.Time
	// ill returns the status that a request fails with, 0 for none; nil fails none.
	ill func(*http.Request) int
	// ahead is the time by which its clock is ahead.
	ahead time.Duration
	// unlabelled forbids nodes to change their labels.
	unlabelled bool
	// reports changes what a kubelet that starts reports.
	reports func(*corev1.Node)
	// pods holds the node's pods; a disruption budget forbids the eviction of guarded ones.
	pods    []corev1.Pod
	guarded []string
	// evicted lists the evicted pods, with the state of the Node at that time.
	evicted []string
	// cordons counts the cordons of the Node.
	cordons int
	// undry makes a webhook reject dry runs.
	undry bool
}

// shows returns the certificate for a handshake.
func (c *cluster) shows(*tls.ClientHelloInfo) (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.served == nil {
		return nil, nil
	}
	return &tls.Config{
		ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{*c.served},
	}, nil
}

func (c *cluster) stranger(oid string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.strangers, oid)
}

func (c *cluster) bootstraps(oid, what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bootstrappers && oid != "" && what == "certificatesigningrequests"
}

// saysNothing reports whether requests fail now, and answers so.
func (c *cluster) saysNothing(w http.ResponseWriter) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent {
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	}
	return c.silent
}

func (c *cluster) lapses() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lapsed
}

// heard returns the time of kubelet's last request; c.mu is held.
func (c *cluster) heard() time.Time {
	if c.heartbeat == nil {
		return time.Now()
	}
	return c.heartbeat()
}

// authority is a CA, with the API server's certificate from it.
type authority struct {
	trusted []byte // PEM
	server  tls.Certificate
}

// authority creates a CA; the API server's certificate is for its address and the given names.
func (c *cluster) authority(names ...string) authority {
	ca, caKey := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: fmt.Sprintf("ca-%d", time.Now().UnixNano())}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	leaf, key := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, DNSNames: names,
		IPAddresses: []net.IP{net.ParseIP("127.0.0.1")},
	}, ca, caKey)
	return authority{
		trusted: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}),
		server:  tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key},
	}
}

// adopt makes the API server use its certificate from a CA.
func (c *cluster) adopt(a authority) {
	c.set(func() { c.served, c.caPEM = &a.server, a.trusted })
}

// newCA replaces the cluster's CA, like `az aks rotate-certs`.
func (c *cluster) newCA(names ...string) { c.adopt(c.authority(names...)) }

// sign creates a certificate, valid for an hour unless it sets another time; without an issuer it
// is self-signed.
func sign(
	template, issuer *x509.Certificate, issuerKey *ecdsa.PrivateKey,
) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	if issuer == nil {
		issuer, issuerKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
	if err != nil {
		panic(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return cert, key
}

// move gives the API server another address: "api-2.example:6443".
func (c *cluster) move(at string) {
	c.set(func() { c.at, c.URL = at, "https://"+at })
}

func (c *cluster) listPods(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reply(w, corev1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: c.behaviour.pods,
	})
}

// run adds pods to the node; each runs, and has a controller.
func (c *cluster) run(names ...string) {
	c.set(func() {
		for _, name := range names {
			started := metav1.Now()
			c.behaviour.pods = append(c.behaviour.pods, corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
					OwnerReferences: []metav1.OwnerReference{{
						Kind: "ReplicaSet", Name: name, Controller: new(true),
					}}},
				Spec:   corev1.PodSpec{NodeName: "edge-1"},
				Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &started},
			})
		}
	})
}

// ignore binds a pod to the node that kubelet does not start.
func (c *cluster) ignore(name string) {
	c.set(func() {
		c.behaviour.pods = append(c.behaviour.pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
				CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour))},
			Spec:   corev1.PodSpec{NodeName: "edge-1"},
			Status: corev1.PodStatus{Phase: corev1.PodPending},
		})
	})
}

// clear removes all pods.
func (c *cluster) clear() { c.set(func() { c.behaviour.pods = nil }) }

// evict removes a pod at once, unless a disruption budget protects it.
func (c *cluster) evict(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name, dry := r.PathValue("name"), r.URL.Query().Has("dryRun")
	if dry && c.undry {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	if slices.Contains(c.guarded, name) {
		w.WriteHeader(http.StatusTooManyRequests)
		reply(w, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
			Reason: metav1.StatusReasonTooManyRequests, Code: http.StatusTooManyRequests,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
				Type:    policyv1.DisruptionBudgetCause,
				Message: "The disruption budget few needs 1 healthy pods and has 1 currently",
			}}},
		})
		return
	}
	done := metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if dry {
		reply(w, metav1.Status{TypeMeta: done, Status: "Success"})
		return
	}
	c.behaviour.pods = slices.DeleteFunc(c.behaviour.pods, func(p corev1.Pod) bool {
		return p.Name == name
	})
	n := c.nodes["edge-1"]
	c.evicted = append(c.evicted, fmt.Sprintf("%s from %s, cordoned: %v",
		name, n.Status.NodeInfo.KubeletVersion, n.Spec.Unschedulable))
	reply(w, metav1.Status{TypeMeta: done, Status: "Success"})
}

// node1 returns a copy of the Node edge-1.
func (c *cluster) node1() corev1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *c.nodes["edge-1"].DeepCopy()
}
