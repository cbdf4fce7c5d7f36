// Package identity proves to Azure who this machine is: as a service principal, a managed identity,
// an Arc machine or the user who has logged in with the Azure CLI. It makes credentials of Azure's
// own SDK, keeps kubelet's token, and says in plain words what Entra ID and Resource Manager object
// to. It reads no configuration file and runs no program of its own.
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

// AKSServer is the Entra application of every AKS API server: tokens for Kubernetes are for it.
const AKSServer = "6dae42f8-4368-4678-94ff-3960e28e3630"

// Proxy chooses the proxy of a request; nil means none.
type Proxy = func(*http.Request) (*url.URL, error)

// Options returns the options of Azure's clients: the cloud, the proxy, and the time limit of a
// try. Only the endpoints tell one Azure from another.
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

// ARM returns the same options for clients of Resource Manager. Its providers are registered by the
// owner of the subscription, not by a node.
func ARM(c config.Azure, proxy Proxy) *arm.ClientOptions {
	return &arm.ClientOptions{ClientOptions: Options(c, proxy), DisableRPRegistration: true}
}

// transport makes an HTTP client that holds few connections: a node asks Azure little.
func transport(proxy Proxy) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy, t.MaxIdleConns, t.IdleConnTimeout = proxy, 4, 30*time.Second
	return &http.Client{Transport: t}
}

// localTimeout limits the time in which a service on this machine accepts a connection.
const localTimeout = 2 * time.Second

// local are the options for metadata services, which are never asked through a proxy.
func local() policy.ClientOptions {
	direct, dialer := transport(nil), net.Dialer{Timeout: localTimeout}
	direct.Transport.(*http.Transport).DialContext = dialer.DialContext
	o := policy.ClientOptions{Transport: direct, PerRetryPolicies: []policy.Policy{azureAnswers{}}}
	o.Retry = policy.RetryOptions{MaxRetries: 2, RetryDelay: 500 * time.Millisecond,
		TryTimeout: 10 * time.Second, StatusCodes: []int{404, 410, 429, 500, 502, 503, 504}}
	return o
}

// azureAnswers refuses what no Azure service answers: a captive portal's or proxy's page.
type azureAnswers struct{}

func (azureAnswers) Do(r *policy.Request) (*http.Response, error) {
	response, err := r.Next()
	if err != nil || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/html") {
		return response, err
	}
	response.Body.Close()
	return nil, &notAzure{host: r.Raw().URL.Host}
}

// notAzure is the answer of something that is not Azure.
type notAzure struct{ host string }

func (e *notAzure) Error() string {
	return "what answers at " + e.host + " is not Azure: it sent a web page"
}

// NonRetriable keeps azcore from asking the same page again.
func (e *notAzure) NonRetriable() {}

// Manager returns the credential for Resource Manager: the node's own, or for Arc that of the
// identity that registers the machine, a service principal or the user of the Azure CLI.
func Manager(c config.Azure, proxy Proxy) (azcore.TokenCredential, error) {
	switch {
	case c.ServicePrincipal != nil:
		return servicePrincipal(c, proxy)
	case c.AuthMode() == config.AuthManagedIdentity:
		return managedIdentity(c.ManagedIdentity.ClientID)
	case c.ArcEnabled():
		return azidentity.NewAzureCLICredential(
			&azidentity.AzureCLICredentialOptions{TenantID: c.TenantID})
	}
	return nil, errors.New("cannot query Azure: the configuration has no identity of Azure")
}

// Kubelet is the credential that kubelet's tokens come from.
func Kubelet(c config.Azure, proxy Proxy) (azcore.TokenCredential, error) {
	return own(c.AuthMode(), c, proxy, "cannot make tokens for kubelet: it has a certificate, as the "+
		"configuration asks for")
}

// Node is the credential of the machine's own identity in Azure, whatever kubelet joins with.
func Node(c config.Azure, proxy Proxy) (azcore.TokenCredential, error) {
	return own(c.Identity(), c, proxy, "cannot follow the resource: the configuration has no "+
		"identity of Azure")
}

func own(
	kind config.AuthMode, c config.Azure, proxy Proxy, none string,
) (azcore.TokenCredential, error) {
	switch kind {
	case config.AuthArc:
		return managedIdentity("") // the source is Arc's, because its agent is on the machine
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

// servicePrincipal makes the application's credential. The public cloud is not asked whether it
// knows the authority: the configuration may name one that it does not know.
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

// Certificate is the one that a service principal proves itself with: of those in its file the last
// one that is of the private key, as Azure's SDK takes it.
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

// Key names an identity together with its secret: the SHA-256, in hex, of the azure section with
// its secrets in clear, and of the contents of the files and credentials that it names. Another
// secret, also one that was put into the same file, has another key. A bootstrap token has no part
// in it: it is no identity of Azure, and is forgotten after the join; nor has a service principal
// that enrols an Arc machine.
func Key(azure config.Azure) (string, error) {
	azure.BootstrapToken = nil
	if azure.AuthMode() == config.AuthArc {
		azure.ServicePrincipal = nil // it has enrolled the machine, whose identity is another one
	}
	section, err := config.Config{Azure: azure}.Reveal()
	if err != nil {
		return "", err
	}
	whole := sha256.New()
	add := func(part []byte) {
		digest := sha256.Sum256(part)
		whole.Write(digest[:])
	}
	add(section)
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

// secret returns the application's secret: from the configuration, from its file, or from a
// credential of systemd, which a name without a slash means (systemd.exec(5), LoadCredential=).
func secret(p config.ServicePrincipal) (string, error) {
	if p.ClientSecretFile == "" {
		return p.ClientSecret.Reveal(), nil
	}
	path := p.ClientSecretFile
	if !strings.Contains(path, "/") {
		dir := os.Getenv("CREDENTIALS_DIRECTORY")
		if dir == "" {
			return "", fmt.Errorf("cannot read the credential %s: systemd has not passed it to this "+
				"process; run it in a unit with LoadCredential=%s", path, path)
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
