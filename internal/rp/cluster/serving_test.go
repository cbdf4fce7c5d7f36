package cluster

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest/kubetest"
)

// wish describes a kubelet's request for a serving certificate.
type wish struct {
	csr  *certificates.CertificateSigningRequest
	text x509.CertificateRequest
	key  crypto.Signer
}

// servingWish returns the request that kubelet makes.
func servingWish(name, node string, addresses ...string) *wish {
	w := &wish{key: newKey(), text: x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node,
			Organization: []string{"system:nodes"}},
		DNSNames: []string{node},
	}}
	for _, a := range addresses {
		w.text.IPAddresses = append(w.text.IPAddresses, net.ParseIP(a))
	}
	w.csr = &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Now()},
		Spec: certificates.CertificateSigningRequestSpec{
			SignerName: certificates.KubeletServingSignerName, Username: "system:node:" + node,
			Groups: []string{"system:nodes", "system:authenticated"},
			Usages: []certificates.KeyUsage{
				certificates.UsageDigitalSignature, certificates.UsageServerAuth,
			},
		},
	}
	return w
}

func (w *wish) signed() *certificates.CertificateSigningRequest {
	w.csr.Spec.Request = kubetest.Signed(w.text, w.key)
	return w.csr
}

// verdictOn returns the decision of judgeServing: Approved, Denied or "" while it is open.
func verdictOn(
	csr *certificates.CertificateSigningRequest, n *seenNode, own reserved,
	taken func(netip.Addr) bool,
) (v, why string) {
	err := judgeServing(csr, n, own, taken)
	if err == nil {
		return "Approved", ""
	}
	if _, is := errors.AsType[denial](err); is {
		return "Denied", err.Error()
	}
	return "", err.Error()
}

// Each lie in a request is denied; a claim that may become true is left undecided.
func TestJudgeServing(t *testing.T) {
	const encipher, clientAuth = certificates.UsageKeyEncipherment, certificates.UsageClientAuth
	more := func(address string) func(*wish) {
		return func(w *wish) { w.text.IPAddresses = append(w.text.IPAddresses, net.ParseIP(address)) }
	}
	rsaKey := must(rsa.GenerateKey(rand.Reader, 2048))
	for want, spoilt := range map[string]map[string]func(*wish){
		"Approved": {
			"as kubelet asks": func(*wish) {},
			"RSA enciphers": func(w *wish) {
				w.key, w.csr.Spec.Usages = rsaKey, append(w.csr.Spec.Usages, encipher)
			},
			"RSA need not":  func(w *wish) { w.key = rsaKey },
			"one address":   func(w *wish) { w.text.IPAddresses = w.text.IPAddresses[:1] },
			"the name only": func(w *wish) { w.text.IPAddresses = nil },
			"no name":       func(w *wish) { w.text.DNSNames = nil },
		},
		"Denied": {
			"another elliptic curve's usage": func(w *wish) {
				w.csr.Spec.Usages = append(w.csr.Spec.Usages, encipher)
			},
			"another sender":   func(w *wish) { w.csr.Spec.Username = "system:node:edge-2" },
			"a sender outside": func(w *wish) { w.csr.Spec.Groups = w.csr.Spec.Groups[1:] },
			"another subject":  func(w *wish) { w.text.Subject.CommonName = "system:node:edge-2" },
			"an administrator": func(w *wish) {
				w.text.Subject.Organization = append(w.text.Subject.Organization, "system:masters")
			},
			"no group":           func(w *wish) { w.text.Subject.Organization = nil },
			"a subject too long": func(w *wish) { w.text.Subject.Country = []string{"X"} },
			"a client too": func(w *wish) {
				w.csr.Spec.Usages = append(w.csr.Spec.Usages, clientAuth)
			},
			"no server":              func(w *wish) { w.csr.Spec.Usages = w.csr.Spec.Usages[:1] },
			"no signature":           func(w *wish) { w.csr.Spec.Usages = w.csr.Spec.Usages[1:] },
			"another name":           func(w *wish) { w.text.DNSNames = []string{"edge-1", "kubernetes"} },
			"a wildcard":             func(w *wish) { w.text.DNSNames = []string{"*"} },
			"a URI":                  func(w *wish) { w.text.URIs = []*url.URL{{Scheme: "spiffe"}} },
			"an address of mail":     func(w *wish) { w.text.EmailAddresses = []string{"a@b"} },
			"no host":                func(w *wish) { w.text.DNSNames, w.text.IPAddresses = nil, nil },
			"loopback":               more("127.0.0.1"),
			"loopback of IPv6":       more("::1"),
			"unspecified":            more("0.0.0.0"),
			"multicast":              more("224.0.0.1"),
			"link-local":             more("169.254.169.254"),
			"link-local of IPv6":     more("fe80::1"),
			"the API server":         more("203.0.113.1"),
			"the Service":            more("10.96.0.1"),
			"the Service of IPv6":    more("fd96::1"),
			"the registration's DNS": more("10.96.0.53"),
			"DNS":                    more("10.96.0.10"),
		},
		"": {
			"an address that it has not": more("192.0.2.99"),
			"an address of another":      more("192.0.2.8"),
		},
	} {
		for name, spoil := range spoilt {
			w := servingWish("x", "edge-1", "192.0.2.7", "fd00::7")
			spoil(w)
			n := seenAt("edge-1", "192.0.2.7,fd00::7,192.0.2.8,127.0.0.1,::1,0.0.0.0,224.0.0.1,"+
				"169.254.169.254,fe80::1,203.0.113.1,10.96.0.1,fd96::1,10.96.0.53,10.96.0.10")
			taken := func(a netip.Addr) bool { return a.String() == "192.0.2.8" }
			if got, why := verdictOn(w.signed(), n, reservedHere(), taken); got != want {
				t.Errorf("%s: %q (%s), want %q", name, got, why, want)
			}
		}
	}
	n := seenAt("edge-1", "")
	w := servingWish("x", "edge-1")
	text := string(w.signed().Spec.Request)
	other := servingWish("y", "edge-1").signed().Spec.Request
	der, _ := pem.Decode(other)
	der.Bytes[len(der.Bytes)-1] ^= 1
	for name, request := range map[string]string{
		"none": "", "two": text + string(other), "spoiled": string(pem.EncodeToMemory(der)),
	} {
		w.csr.Spec.Request = []byte(request)
		got, _ := verdictOn(w.csr, n, reservedHere(), nil)
		equal(t, name, got, "Denied")
	}
}

// seenAt returns a Node with addresses.
func seenAt(name, addresses string) *seenNode {
	return &seenNode{name: name, addresses: addresses}
}

// reservedHere returns the addresses and URLs that no node of a cluster may have.
func reservedHere() reserved {
	address := netip.MustParseAddr
	return reserved{
		urls:      []string{"https://Factory.example:6443", "https://203.0.113.1"},
		addresses: []netip.Addr{address("203.0.113.1"), address("10.96.0.53")},
		services:  []netip.Addr{address("10.96.0.1"), address("fd96::1"), address("10.96.0.10")},
	}
}

// A node named like the API server gets no certificate for that name; none gets one for an address
// while the API server's addresses are unknown.
func TestJudgeServingOfTheAPIServer(t *testing.T) {
	ofNoNode := func(netip.Addr) bool { return false }
	for want, names := range map[string]string{
		"Denied": "kubernetes kubernetes.default kubernetes.default.svc kubernetes.default.svc.x.y " +
			"kubernetes.default.svc.cluster.local localhost factory.example 203.0.113.1",
		"Approved": "kubernetes-1 kubernetes.defaults example",
	} {
		for name := range strings.FieldsSeq(names) {
			w := servingWish("x", name, "192.0.2.7")
			got, _ := verdictOn(w.signed(), seenAt(name, "192.0.2.7"), reservedHere(), ofNoNode)
			equal(t, name, got, want)
		}
	}
	own := reservedHere()
	own.services = nil
	w := servingWish("x", "edge-1", "192.0.2.7")
	got, _ := verdictOn(w.signed(), seenAt("edge-1", "192.0.2.7"), own, ofNoNode)
	equal(t, "while the Service is not known", got, "")
}

// node adds a Node, or changes the addresses of one.
func (c *fakeCluster) node(name string, flex bool, addresses ...string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if flex {
		n.Labels = map[string]string{managedLabel: "false"}
	}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses,
			corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	nodes, ctx := c.CoreV1().Nodes(), context.Background()
	if _, err := nodes.Create(ctx, n, metav1.CreateOptions{}); err != nil {
		must(nodes.Update(ctx, n, metav1.UpdateOptions{}))
	}
	pass(time.Second)
}

// A flex node gets its serving certificate once its Node lists the requested addresses; requests of
// other Nodes are left to other approvers.
func TestServingCertificates(t *testing.T) {
	inFactory(t, func(t *testing.T, w *world, c *fakeCluster) {
		for _, name := range []string{"edge-1", "edge-2", "edge-3"} {
			w.put(factoryID, name, flexnode.Desired{})
		}
		c.node("edge-1", true, "192.0.2.1")
		c.node("edge-2", true, "192.0.2.1", "192.0.2.2")
		c.node("edge-3", false, "192.0.2.3")
		c.node("aks-1", false, "192.0.2.4")
		edit(w, w.store.Clusters, factory, func(c *flexnode.Cluster) {
			c.Properties.DNSServiceIP = "10.96.0.99"
		})
		for name, addresses := range map[string][]string{
			"edge-4": {"10.96.0.1"}, "edge-5": {"fd96::1"}, "edge-6": {"10.96.0.10"},
			"edge-7": {"10.96.0.99"}, // that of DNS, by the registration
		} {
			w.put(factoryID, name, flexnode.Desired{})
			c.node(name, true, addresses...)
			equal(t, name+", which lists an address of the cluster's own",
				c.Ask(servingWish(name, name, addresses...).signed()), "Denied")
		}
		for _, tt := range []struct {
			wish *wish
			want string
		}{
			{servingWish("aks", "aks-1", "192.0.2.4"), ""},
			{servingWish("same-name", "edge-3", "192.0.2.3"), ""},
			{servingWish("own", "edge-2", "192.0.2.2"), "Approved"},
			{servingWish("others", "edge-2", "192.0.2.1"), ""},
			{servingWish("future", "edge-1", "192.0.2.9"), ""},
			{servingWish("gone", "edge-9", "192.0.2.9"), ""},
		} {
			equal(t, tt.wish.csr.Name, c.Ask(tt.wish.signed()), tt.want)
		}
		lies := servingWish("lies", "edge-2", "192.0.2.2")
		lies.text.DNSNames = append(lies.text.DNSNames, "kubernetes.default.svc")
		equal(t, "another name", c.Ask(lies.signed()), "Denied")
		c.node("edge-1", true, "192.0.2.9")
		pass(time.Minute)
		equal(t, "once the Node lists its address", c.Answer("future"), "Approved")
		equal(t, "once no other Node has its address", c.Answer("others"), "Approved")
	})
}
