package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v6"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// TokenScope is the scope for which Entra ID issues tokens of AKS API servers: the application
// "Azure Kubernetes Service AAD Server" (AKS, "Use kubelogin", --server-id).
const TokenScope = "6dae42f8-4368-4678-94ff-3960e28e3630/.default"

// ResourceManager is a Source that asks Azure for the API server of a cluster. The provider
// authenticates to that with tokens of its own identity.
type ResourceManager struct {
	// Clusters returns a client of Resource Manager for a subscription.
	Clusters func(subscription string) (*armcontainerservice.ManagedClustersClient, error)
	// Tokens issues the provider's own tokens, and caches them until shortly before they expire.
	Tokens azcore.TokenCredential
	// Admin allows static credentials, which make the provider administrator of the cluster, for
	// clusters that do not accept Entra's tokens.
	Admin bool
	// Local allows API servers at one of the provider's own addresses.
	Local bool
	Now   func() time.Time

	known sync.Map // of answer, by id of the cluster
}

// answer holds the answer of Resource Manager about a cluster.
type answer struct {
	access Access
	err    error
	at     time.Time
}

// Max ages of an answer of Resource Manager, which accepts few requests; API servers seldom move.
// An answer that is an error, or whose access was refused, is requested again sooner.
const answerAge, refusedAge = time.Hour, 30 * time.Second

// errStatic is the error for a cluster that needs static credentials, which are not allowed.
var errStatic = errors.New("the cluster does not take tokens of Entra ID, and the settings do " +
	"not allow its administrator's credentials")

// Access implements Source.
func (m *ResourceManager) Access(
	ctx context.Context, c flexnode.Cluster, again bool,
) (Access, error) {
	key := arm.Key(c.ID)
	last, _ := m.known.Load(key)
	known, ok := last.(answer)
	age := answerAge
	if again || known.err != nil {
		age = refusedAge
	}
	if ok && m.Now().Sub(known.at) < age {
		return known.access, known.err
	}
	access, err := m.ask(ctx, c.ID)
	access.Local = m.Local
	if err != nil && ctx.Err() != nil { // it is not about the cluster
		return Access{}, err
	}
	m.known.Range(func(k, v any) bool { // clusters that are not asked for any more
		if m.Now().Sub(v.(answer).at) >= answerAge {
			m.known.Delete(k)
		}
		return true
	})
	m.known.Store(key, answer{access, err, m.Now()})
	return access, err
}

// ask asks Resource Manager for the kubeconfig of users. Of that only the server and its CA are
// used if users authenticate with tokens.
func (m *ResourceManager) ask(ctx context.Context, clusterID string) (Access, error) {
	id, _ := arm.Parse(clusterID) // it was checked
	client, err := m.Clusters(id.Subscription)
	if err != nil {
		return Access{}, fmt.Errorf("cannot ask Resource Manager for the cluster: %w", err)
	}
	users, err := client.ListClusterUserCredentials(ctx, id.ResourceGroup, id.Name(),
		&armcontainerservice.ManagedClustersClientListClusterUserCredentialsOptions{
			Format: new(armcontainerservice.FormatExec)})
	var access Access
	if err == nil {
		access, err = m.access(users.Kubeconfigs, false)
	}
	if err == nil {
		return access, nil
	}
	if !m.Admin {
		return Access{}, fmt.Errorf("cannot get the users' kubeconfig from Resource Manager: %w", err)
	}
	admin, adminErr := client.ListClusterAdminCredentials(ctx, id.ResourceGroup, id.Name(), nil)
	if adminErr == nil {
		access, adminErr = m.access(admin.Kubeconfigs, true)
	}
	if adminErr == nil {
		return access, nil
	}
	return Access{}, fmt.Errorf("cannot get a kubeconfig from Resource Manager: %w",
		errors.Join(err, adminErr))
}

// access returns the access that the first kubeconfig gives, with the credentials in it or, unless
// it is the administrator's, with the provider's own tokens.
func (m *ResourceManager) access(
	found []*armcontainerservice.CredentialResult, admin bool,
) (Access, error) {
	if len(found) == 0 || found[0] == nil {
		return Access{}, errors.New("it has none")
	}
	text := found[0].Value
	cluster, user, err := current(text)
	if err != nil {
		return Access{}, err
	}
	kind := "admin"
	if !admin {
		if user.Exec == nil && user.AuthProvider == nil { // they have a certificate, as administrators
			return Access{}, errStatic
		}
		kind, user = "user", &clientcmdapi.AuthInfo{}
	}
	config, err := inlineConfig(cluster, user)
	if err != nil {
		return Access{}, err
	}
	if !admin {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return &withToken{next: next, tokens: m.Tokens}
		})
	}
	return Access{Config: config, Fingerprint: fingerprint(kind, text, config)}, nil
}

// withToken adds a token to each request, so that a renewed token needs no new connection.
type withToken struct {
	next   http.RoundTripper
	tokens azcore.TokenCredential
}

// RoundTrip implements http.RoundTripper.
func (t *withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.tokens.GetToken(r.Context(),
		policy.TokenRequestOptions{Scopes: []string{TokenScope}})
	if err != nil {
		return nil, fmt.Errorf("cannot get a token for the API server: %w", err)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token.Token)
	return t.next.RoundTrip(r)
}
