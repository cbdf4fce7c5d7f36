// Package identity proves to Azure who this machine is: as a service principal, a managed identity,
// an Arc machine or the user who has logged in with the Azure CLI. It makes credentials of Azure's
// own SDK, keeps kubelet's token, and says in plain words what Entra ID and Resource Manager object
// to. It reads no configuration file and runs no program of its own.
package identity

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/config"
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
