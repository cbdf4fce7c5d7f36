package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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

// makePKI makes the lab's CA and everything that is signed with it, once.
func (l *Lab) makePKI() error {
	if _, err := os.Stat(l.path("pki", "done")); err == nil {
		return nil
	}
	if err := os.MkdirAll(l.path("pki"), 0o700); err != nil {
		return fmt.Errorf("cannot make the PKI: %w", err)
	}
	ca, err := issue(nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: "flexlab CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign,
	})
	if err != nil {
		return err
	}
	if err := l.writeIdentity("ca", ca); err != nil {
		return err
	}
	server := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"},
		IPAddresses: []net.IP{net.ParseIP(HostIP), net.ParseIP("127.0.0.1"), net.ParseIP("10.96.0.1")},
		KeyUsage:    x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if err := l.issueTo("server", ca, server); err != nil {
		return err
	}
	for name, subject := range map[string]pkix.Name{
		"admin":                   {CommonName: "flexlab-admin", Organization: []string{"system:masters"}},
		"kubelet-client":          {CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}},
		"kube-controller-manager": {CommonName: "system:kube-controller-manager"},
		"kube-scheduler":          {CommonName: "system:kube-scheduler"},
		"flexnode-rp":             {CommonName: "flexnode-rp"},
		"resource-manager":        {CommonName: "resource-manager.azuresim"},
	} {
		client := &x509.Certificate{Subject: subject, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		if err := l.issueTo(name, ca, client); err != nil {
			return err
		}
		if err := l.writeKubeconfig(name); err != nil {
			return err
		}
	}
	if err := l.issueTo("sa", ca, &x509.Certificate{Subject: pkix.Name{CommonName: "service-accounts"}}); err != nil {
		return err
	}
	return os.WriteFile(l.path("pki", "done"), nil, 0o600)
}

func (l *Lab) issueTo(name string, ca *identity, template *x509.Certificate) error {
	id, err := issue(ca, template)
	if err != nil {
		return err
	}
	return l.writeIdentity(name, id)
}

// issue signs a certificate with ca, or with itself when ca is nil.
func issue(ca *identity, template *x509.Certificate) (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, fmt.Errorf("cannot make a serial number: %w", err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = serial, time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)
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
	if err := os.WriteFile(l.path("pki", name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: id.der}), 0o600); err != nil {
		return fmt.Errorf("cannot write a certificate: %w", err)
	}
	return os.WriteFile(l.path("pki", name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key}), 0o600)
}

// writeKubeconfig writes the kubeconfig of one of the lab's own identities.
func (l *Lab) writeKubeconfig(name string) error {
	var data [3]string
	for i, file := range []string{"ca.crt", name + ".crt", name + ".key"} {
		text, err := os.ReadFile(l.path("pki", file))
		if err != nil {
			return fmt.Errorf("cannot read the PKI: %w", err)
		}
		data[i] = base64.StdEncoding.EncodeToString(text)
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: flexlab, cluster: {server: "%s", certificate-authority-data: %s}}]
users: [{name: %s, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: flexlab, context: {cluster: flexlab, user: %s}}]
current-context: flexlab
`, APIServer, data[0], name, data[1], data[2], name)
	return os.WriteFile(l.path(name+".kubeconfig"), []byte(text), 0o600)
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (l *Lab) Kubeconfig() string { return l.path("admin.kubeconfig") }

// CAFile is the path of the lab's CA, which is the cluster's too, as PEM.
func (l *Lab) CAFile() string { return l.path("pki", "ca.crt") }

// CA returns the lab's CA as PEM.
func (l *Lab) CA() ([]byte, error) { return os.ReadFile(l.CAFile()) }
