package cluster

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// maxKubeconfig limits the size of a kubeconfig, and of a token file that a trusted one names.
const maxKubeconfig = 256 << 10

// readFile reads a file of at most maxKubeconfig bytes.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxKubeconfig+1))
	if err == nil && len(text) > maxKubeconfig {
		err = fmt.Errorf("%s has more than %d KiB", path, maxKubeconfig>>10)
	}
	return text, err
}

// current returns the cluster and the user of a kubeconfig's current context. It reads no file and
// runs no program that the kubeconfig names.
func current(text []byte) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, error) {
	if len(text) > maxKubeconfig {
		return nil, nil, fmt.Errorf("the kubeconfig has more than %d KiB", maxKubeconfig>>10)
	}
	parsed, err := clientcmd.Load(text)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the kubeconfig: %w", err)
	}
	present := parsed.Contexts[parsed.CurrentContext]
	if present == nil {
		return nil, nil, errors.New("the kubeconfig has no current context")
	}
	cluster, user := parsed.Clusters[present.Cluster], parsed.AuthInfos[present.AuthInfo]
	if cluster == nil || user == nil {
		return nil, nil, errors.New("the kubeconfig has no cluster or no user")
	}
	return cluster, user, nil
}

// plainConfig returns the configuration in a kubeconfig that is not trusted.
func plainConfig(text []byte) (*rest.Config, error) {
	cluster, user, err := current(text)
	if err != nil {
		return nil, err
	}
	return inlineConfig(cluster, user)
}

// inlineConfig returns a configuration of server, CA and inline credentials. It refuses a
// kubeconfig with any other setting about the connection.
func inlineConfig(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) (*rest.Config, error) {
	if u.Exec != nil {
		return nil, errProgram
	}
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"insecure-skip-tls-verify", c.InsecureSkipTLSVerify},
		{"certificate-authority", c.CertificateAuthority != ""},
		{"proxy-url", c.ProxyURL != ""},
		{"client-certificate", u.ClientCertificate != ""},
		{"client-key", u.ClientKey != ""},
		{"tokenFile", u.TokenFile != ""},
		{"auth-provider", u.AuthProvider != nil},
		{"username", u.Username != "" || u.Password != ""},
		{"as", u.Impersonate+u.ImpersonateUID != "" || len(u.ImpersonateGroups) > 0},
	} {
		if field.set {
			return nil, fmt.Errorf("it has %s, which only a binding with trusted allows", field.name)
		}
	}
	at, err := url.Parse(c.Server)
	if err != nil || at.Scheme != "https" || at.Host == "" || at.User != nil {
		return nil, errors.New("its server is not an https URL of a host")
	}
	for _, list := range [][]byte{c.CertificateAuthorityData, u.ClientCertificateData} {
		if err := checkCertificates(list); err != nil {
			return nil, err
		}
	}
	if len(u.ClientKeyData) > maxRequest {
		return nil, errors.New("its client-key-data is too large to be a key")
	}
	return &rest.Config{Host: c.Server, BearerToken: u.Token, TLSClientConfig: rest.TLSClientConfig{
		CAData: c.CertificateAuthorityData, ServerName: c.TLSServerName,
		CertData: u.ClientCertificateData, KeyData: u.ClientKeyData}}, nil
}

// errProgram is the error for a kubeconfig whose credentials come from a program.
var errProgram = errors.New("it has exec: the provider runs no programs of kubeconfigs")

// trustedConfig returns the configuration in a kubeconfig that may name files, whose contents
// replace their names.
func trustedConfig(path string) (*rest.Config, error) {
	parsed, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, err
	}
	if err := clientcmd.ResolveLocalPaths(parsed); err != nil {
		return nil, err
	}
	config, err := clientcmd.NewDefaultClientConfig(*parsed, nil).ClientConfig()
	if err == nil && config.ExecProvider != nil {
		err = errProgram
	}
	if err == nil {
		err = rest.LoadTLSFiles(config)
	}
	if err != nil {
		return nil, err
	}
	config.CAFile, config.CertFile, config.KeyFile = "", "", ""
	if config.BearerTokenFile == "" {
		return config, nil
	}
	token, err := readFile(config.BearerTokenFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read the token: %w", err)
	}
	config.BearerToken, config.BearerTokenFile = strings.TrimSpace(string(token)), ""
	return config, nil
}

// The largest RSA keys that are accepted, in bits. The limit for certificates is that of
// crypto/tls. The cost of a signature check grows with the square of the size, and it cannot be
// cancelled.
const maxRequestKey, maxCertificateKey = 4096, 8192

// soundKey reports whether a public key has a usual type and size.
func soundKey(key any, maxRSA int) bool {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return k.N.BitLen() >= 2048 && k.N.BitLen() <= maxRSA
	case *ecdsa.PublicKey:
		return slices.Contains([]elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()},
			k.Curve)
	case ed25519.PublicKey:
		return true
	}
	return false
}

// checkCertificates refuses certificates with keys of an unusual type or size.
func checkCertificates(list []byte) error {
	for block, rest := pem.Decode(list); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fmt.Errorf("cannot read a certificate: %w", err)
		}
		if !soundKey(certificate.PublicKey, maxCertificateKey) {
			return errors.New("a certificate has a key of an unusual type or size")
		}
	}
	return nil
}
