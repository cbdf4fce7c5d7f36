package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// identity is a certificate with its key.
type identity struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	der  []byte
}

// clients are the users that the cluster authenticates by certificate: its own components, the
// administrator and the resource provider.
var clients = map[string]pkix.Name{
	"admin":                   {CommonName: "flexlab-admin", Organization: []string{"system:masters"}},
	"kube-controller-manager": {CommonName: "system:kube-controller-manager"},
	"kube-scheduler":          {CommonName: "system:kube-scheduler"},
	providerUser:              {CommonName: providerUser},
	dnsUser:                   {CommonName: dnsUser},
}

// makePKI creates two CAs and everything that they sign, once: "ca" for the lab's own servers,
// which machines trust like public ones, and "cluster-ca" for the cluster, which is trusted only
// where it is distributed, and which RotateCA replaces.
func (l *Lab) makePKI() error {
	if _, err := os.Stat(l.path("pki", "done")); err == nil {
		return nil
	}
	if err := os.MkdirAll(l.path("pki"), 0o700); err != nil {
		return fmt.Errorf("cannot make the PKI: %w", err)
	}
	ca, err := l.newCA("ca", "flexlab CA")
	if err != nil {
		return err
	}
	if err := l.issueTo("server", ca, serverCertificate("flexlab")); err != nil {
		return err
	}
	manager := clientCertificate(pkix.Name{CommonName: "resource-manager.azuresim"})
	if err := l.issueTo("resource-manager", ca, manager); err != nil {
		return err
	}
	if err := l.makeClusterPKI(); err != nil {
		return err
	}
	if err := l.makeFrontProxy(); err != nil {
		return err
	}
	keys := &x509.Certificate{Subject: pkix.Name{CommonName: "service-accounts"}}
	if err := l.issueTo("sa", ca, keys); err != nil {
		return err
	}
	return os.WriteFile(l.path("pki", "done"), nil, 0o600)
}

// makeFrontProxy creates the identity with which the API server forwards requests to aggregated
// ones, and a separate CA for it: certificates of that CA may impersonate every user.
func (l *Lab) makeFrontProxy() error {
	ca, err := l.newCA("front-proxy-ca", "flexlab front proxy CA")
	if err != nil {
		return err
	}
	return l.issueTo("front-proxy", ca, clientCertificate(pkix.Name{CommonName: "front-proxy"}))
}

// makeClusterPKI creates a new CA of the cluster, and the certificates of the API server and its
// clients. Clients of previous CAs remain accepted (client-ca.crt has all of them).
func (l *Lab) makeClusterPKI() error {
	ca, err := l.newCA("cluster-ca", fmt.Sprintf("flexlab cluster CA %d", time.Now().UnixNano()))
	if err != nil {
		return err
	}
	if err := l.acceptClientsOf("cluster-ca"); err != nil {
		return err
	}
	if err := l.issueTo("apiserver", ca, serverCertificate("kube-apiserver")); err != nil {
		return err
	}
	kubelets := clientCertificate(pkix.Name{
		CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"},
	})
	if err := l.issueTo("kubelet-client", ca, kubelets); err != nil {
		return err
	}
	for name, subject := range clients {
		if err := l.issueTo(name, ca, clientCertificate(subject)); err != nil {
			return err
		}
		if err := l.writeKubeconfig(name); err != nil {
			return err
		}
	}
	return nil
}

// acceptClientsOf adds a CA to those of the API server's accepted clients.
func (l *Lab) acceptClientsOf(ca string) error {
	cert, err := os.ReadFile(l.path("pki", ca+".crt"))
	if err != nil {
		return fmt.Errorf("cannot read the PKI: %w", err)
	}
	path := l.path("pki", "client-ca.crt")
	bundle, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot write the PKI: %w", err)
	}
	defer bundle.Close()
	if _, err := bundle.Write(cert); err != nil {
		return fmt.Errorf("cannot write the PKI: %w", err)
	}
	return bundle.Close()
}

// newCA creates a CA.
func (l *Lab) newCA(name, subject string) (*identity, error) {
	ca, err := issue(nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: subject}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign,
	})
	if err != nil {
		return nil, err
	}
	return ca, l.writeIdentity(name, ca)
}

func serverCertificate(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name},
		DNSNames: []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost",
			ReleaseHost},
		IPAddresses: []net.IP{
			net.ParseIP(HostIP),
			net.ParseIP("127.0.0.1"),
			net.ParseIP(KubernetesService),
		},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
}

func clientCertificate(subject pkix.Name) *x509.Certificate {
	return &x509.Certificate{
		Subject: subject, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

func (l *Lab) issueTo(name string, ca *identity, template *x509.Certificate) error {
	id, err := issue(ca, template)
	if err != nil {
		return err
	}
	return l.writeIdentity(name, id)
}

// issue issues a certificate signed by ca, or self-signed if ca is nil.
func issue(ca *identity, template *x509.Certificate) (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, fmt.Errorf("cannot make a serial number: %w", err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = serial, time.Now().Add(-time.Hour),
		time.Now().AddDate(1, 0, 0)
	parent, signer := template, key
	if ca != nil {
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("cannot sign a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	return &identity{cert: cert, key: key, der: der}, err
}

func (l *Lab) writeIdentity(name string, id *identity) error {
	key, err := x509.MarshalECPrivateKey(id.key)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	if err := os.WriteFile(l.path("pki", name+".crt"),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: id.der}), 0o600); err != nil {
		return fmt.Errorf("cannot write a certificate: %w", err)
	}
	return os.WriteFile(l.path("pki", name+".key"),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key}), 0o600)
}

// readIdentity reads an identity that writeIdentity wrote.
func (l *Lab) readIdentity(name string) (*identity, error) {
	pair, err := tls.LoadX509KeyPair(l.path("pki", name+".crt"), l.path("pki", name+".key"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the PKI: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("internal error: the key of %s is a %T", name, pair.PrivateKey)
	}
	return &identity{cert: pair.Leaf, key: key, der: pair.Certificate[0]}, nil
}

// IssueClient issues a new client certificate for a user of the cluster, and returns a kubeconfig
// with it.
func (l *Lab) IssueClient(user string) ([]byte, error) {
	ca, err := l.readIdentity("cluster-ca")
	if err != nil {
		return nil, err
	}
	if err := l.issueTo(user, ca, clientCertificate(pkix.Name{CommonName: user})); err != nil {
		return nil, err
	}
	return l.kubeconfigOf(user, APIServer)
}

// writeKubeconfig writes the kubeconfig of one of the lab's own users.
func (l *Lab) writeKubeconfig(name string) error {
	text, err := l.kubeconfigOf(name, APIServer)
	if err != nil {
		return err
	}
	return os.WriteFile(l.path(name+".kubeconfig"), text, 0o600)
}

// kubeconfigOf returns the kubeconfig of a user with a certificate of the cluster.
func (l *Lab) kubeconfigOf(name, server string) ([]byte, error) {
	var data [3]string
	for i, file := range []string{"cluster-ca.crt", name + ".crt", name + ".key"} {
		text, err := os.ReadFile(l.path("pki", file))
		if err != nil {
			return nil, fmt.Errorf("cannot read the PKI: %w", err)
		}
		data[i] = base64.StdEncoding.EncodeToString(text)
	}
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: flexlab, cluster: {server: "%s", certificate-authority-data: %s}}]
users: [{name: %s, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: flexlab, context: {cluster: flexlab, user: %s}}]
current-context: flexlab
`, server, data[0], name, data[1], data[2], name), nil
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (l *Lab) Kubeconfig() string { return l.path("admin.kubeconfig") }

// CAFile returns the path of the CA of the lab's own servers (mirror, Azure, provider), as PEM. It
// is in every machine's trust store.
func (l *Lab) CAFile() string { return l.path("pki", "ca.crt") }

// CA returns the CA of the lab's own servers as PEM.
func (l *Lab) CA() ([]byte, error) { return os.ReadFile(l.CAFile()) }

// ClusterCA returns the cluster's CA as PEM.
func (l *Lab) ClusterCA() ([]byte, error) { return os.ReadFile(l.path("pki", "cluster-ca.crt")) }

// trusted returns a pool of both CAs.
func (l *Lab) trusted() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	for _, read := range []func() ([]byte, error){l.CA, l.ClusterCA} {
		text, err := read()
		if err != nil {
			return nil, fmt.Errorf("cannot read the PKI: %w", err)
		}
		pool.AppendCertsFromPEM(text)
	}
	return pool, nil
}
