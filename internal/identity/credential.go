// Package identity authenticates this machine to Azure: as a service principal, a managed identity,
// an Arc machine or the user logged in with the Azure CLI. It creates credentials of Azure's own
// SDK, caches kubelet's token, and explains errors of Entra ID and Resource Manager in plain words.
// It reads no configuration file and runs no program of its own.
package identity

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/regular"
)

// AKSServer is the Entra application of all AKS API servers, the audience of tokens for Kubernetes.
const AKSServer = "6dae42f8-4368-4678-94ff-3960e28e3630"

// Proxy chooses the proxy of a request; nil means none.
type Proxy = func(*http.Request) (*url.URL, error)

// Options returns the options of Azure clients: the cloud, the proxy, and the timeout of one try.
// Clouds differ only in their endpoints.
func Options(c config.Azure, proxy Proxy) policy.ClientOptions {
	return policy.ClientOptions{
		Cloud: cloud.Configuration{
			ActiveDirectoryAuthorityHost: c.AuthorityHost,
			Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
				cloud.ResourceManager: {Endpoint: c.ResourceManagerEndpoint,
					Audience: c.ResourceManagerEndpoint},
			},
		},
		Transport: transport(proxy),
		Retry: policy.RetryOptions{MaxRetries: 3, RetryDelay: 500 * time.Millisecond,
			MaxRetryDelay: 30 * time.Second, TryTimeout: 20 * time.Second},
		Telemetry:        policy.TelemetryOptions{ApplicationID: "aks-flex-node"},
		PerRetryPolicies: []policy.Policy{azureAnswers{}},
	}
}

// ARM returns the same options for clients of Resource Manager. The owner of the subscription, and
// not a node, registers its providers.
func ARM(c config.Azure, proxy Proxy) *arm.ClientOptions {
	return &arm.ClientOptions{ClientOptions: Options(c, proxy), DisableRPRegistration: true}
}

// transport returns an HTTP client that keeps few connections: a node rarely talks to Azure.
func transport(proxy Proxy) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy, t.MaxIdleConns, t.IdleConnTimeout = proxy, 4, 30*time.Second
	return &http.Client{Transport: t}
}

// local returns the options for metadata services, which are never reached through a proxy.
func local() policy.ClientOptions {
	direct, dialer := transport(nil), net.Dialer{Timeout: 2 * time.Second} // on this machine
	direct.Transport.(*http.Transport).DialContext = dialer.DialContext
	return policy.ClientOptions{Transport: direct, PerRetryPolicies: []policy.Policy{azureAnswers{}},
		Retry: policy.RetryOptions{MaxRetries: 2, RetryDelay: 500 * time.Millisecond,
			TryTimeout: 10 * time.Second, StatusCodes: []int{404, 410, 429, 500, 502, 503, 504}}}
}

// azureAnswers refuses answers that are not from Azure: a captive portal's or proxy's page.
type azureAnswers struct{}

func (azureAnswers) Do(r *policy.Request) (*http.Response, error) {
	response, err := r.Next()
	if err != nil || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/html") {
		return response, err
	}
	response.Body.Close()
	return nil, &notAzure{host: r.Raw().URL.Host}
}

// notAzure reports an answer that is not from Azure.
type notAzure struct{ host string }

func (e *notAzure) Error() string {
	return "what answers at " + e.host + " is not Azure: it sent a web page"
}

// NonRetriable keeps azcore from requesting the same page again.
func (e *notAzure) NonRetriable() {}

// Manager returns the credential for Resource Manager: the node's own, or for Arc that of the
// identity that enrols the machine, a service principal or the user of the Azure CLI.
func Manager(c config.Azure, proxy Proxy) (azcore.TokenCredential, error) {
	switch {
	case c.ServicePrincipal != nil:
		return servicePrincipal(c, proxy)
	case c.ArcEnabled():
		return azidentity.NewAzureCLICredential(
			&azidentity.AzureCLICredentialOptions{TenantID: c.TenantID})
	}
	return own(c.AuthMode(), c, proxy,
		"cannot query Azure: the configuration has no identity of Azure")
}

// Kubelet returns the credential for kubelet's tokens.
func Kubelet(c config.Azure, proxy Proxy) (azcore.TokenCredential, error) {
	return own(c.AuthMode(), c, proxy, "cannot make tokens for kubelet: it has a certificate, as the "+
		"configuration asks for")
}

// Node returns the credential of the machine's own Azure identity, however kubelet joins.
func Node(c config.Azure, proxy Proxy) (azcore.TokenCredential, error) {
	return own(c.Identity(), c, proxy, "cannot follow the resource: the configuration has no "+
		"identity of Azure")
}

func own(
	kind config.AuthMode, c config.Azure, proxy Proxy, none string,
) (azcore.TokenCredential, error) {
	switch kind {
	case config.AuthArc:
		return managedIdentity("") // its source is Arc, as the Arc agent is on the machine
	case config.AuthManagedIdentity:
		return managedIdentity(c.ManagedIdentity.ClientID)
	case config.AuthServicePrincipal:
		return servicePrincipal(c, proxy)
	}
	return nil, errors.New(none)
}

func managedIdentity(clientID string) (azcore.TokenCredential, error) {
	o := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: local()}
	if clientID != "" {
		o.ID = azidentity.ClientID(clientID)
	}
	return azidentity.NewManagedIdentityCredential(o)
}

// servicePrincipal returns the application's credential. It does not ask the public cloud to
// confirm the authority: the configuration may name one unknown to it.
func servicePrincipal(c config.Azure, proxy Proxy) (azcore.TokenCredential, error) {
	sp, o := c.ServicePrincipal, Options(c, proxy)
	if sp.CertificateFile != "" {
		certs, key, err := certificates(*sp)
		if err != nil {
			return nil, err
		}
		return azidentity.NewClientCertificateCredential(sp.TenantID, sp.ClientID, certs, key,
			&azidentity.ClientCertificateCredentialOptions{
				ClientOptions: o, DisableInstanceDiscovery: true,
			})
	}
	value, err := secret(*sp)
	if err != nil {
		return nil, err
	}
	return azidentity.NewClientSecretCredential(sp.TenantID, sp.ClientID, value,
		&azidentity.ClientSecretCredentialOptions{ClientOptions: o, DisableInstanceDiscovery: true})
}

func certificates(sp config.ServicePrincipal) ([]*x509.Certificate, crypto.PrivateKey, error) {
	data, err := certificateFile(sp)
	if err != nil {
		return nil, nil, err
	}
	certs, key, err := azidentity.ParseCertificates(data, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot use %s: it must hold a certificate and its private key "+
			"as PEM, unencrypted: %w", sp.CertificateFile, err)
	}
	return certs, key, nil
}

// Certificate returns the certificate that a service principal uses: the last one in its file that
// belongs to the private key, as in Azure's SDK.
func Certificate(sp config.ServicePrincipal) (*x509.Certificate, error) {
	certs, key, err := certificates(sp)
	if err != nil {
		return nil, err
	}
	private, ok := key.(crypto.Signer)
	for _, c := range slices.Backward(certs) {
		is, has := c.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
		if ok && has && is.Equal(private.Public()) {
			return c, nil
		}
	}
	return nil, fmt.Errorf("cannot use %s: none of its certificates matches its private key",
		sp.CertificateFile)
}

func certificateFile(sp config.ServicePrincipal) ([]byte, error) {
	data, err := regular.ReadFile(sp.CertificateFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read azure.servicePrincipal.certificateFile: %w", err)
	}
	return data, nil
}

// Key identifies an identity together with its secret: the hexadecimal SHA-256 of the azure section
// with its secrets in clear, and of the contents of the files and credentials that it names.
// Another secret, even in the same file, has another key. It excludes a bootstrap token, which is
// forgotten after the join, and a service principal that enrols an Arc machine.
func Key(azure config.Azure) (string, error) {
	azure.BootstrapToken = nil
	if azure.AuthMode() == config.AuthArc {
		azure.ServicePrincipal = nil // it only enrolled the machine, which has its own identity
	}
	whole := sha256.New()
	add := func(part []byte) {
		digest := sha256.Sum256(part)
		whole.Write(digest[:])
	}
	add(config.Config{Azure: azure}.Reveal())
	if sp := azure.ServicePrincipal; sp != nil && sp.ClientSecretFile != "" {
		text, err := secret(*sp)
		if err != nil {
			return "", err
		}
		add([]byte(text))
	}
	if sp := azure.ServicePrincipal; sp != nil && sp.CertificateFile != "" {
		data, err := certificateFile(*sp)
		if err != nil {
			return "", err
		}
		add(data)
	}
	return hex.EncodeToString(whole.Sum(nil)), nil
}

// secret returns the application's secret: from the configuration, from its file, or, for a name
// without a slash, from a systemd credential (systemd.exec(5), LoadCredential=).
func secret(p config.ServicePrincipal) (string, error) {
	if p.ClientSecretFile == "" {
		return p.ClientSecret.Reveal(), nil
	}
	path := p.ClientSecretFile
	if !strings.Contains(path, "/") {
		dir := os.Getenv("CREDENTIALS_DIRECTORY")
		if dir == "" {
			return "", fmt.Errorf("cannot read the credential %s: systemd has not passed it to this "+
				"process; run it in a unit with LoadCredential=%s (systemd 251 or later)", path, path)
		}
		path = filepath.Join(dir, path)
	}
	data, err := regular.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the service principal's secret: %w", err)
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" {
		return "", fmt.Errorf("cannot use %s: it is empty; it must hold the service principal's "+
			"secret and nothing else", path)
	}
	return text, nil
}
