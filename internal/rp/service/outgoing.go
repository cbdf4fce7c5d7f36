package service

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v6"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/Azure/AKSFlexNode/internal/rp/cluster"
	"github.com/Azure/AKSFlexNode/internal/rp/front"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// outgoing holds the clients with which the provider reaches Azure.
type outgoing struct {
	client     *http.Client
	cloud      cloud.Configuration
	credential azcore.TokenCredential // nil without an identity
}

func newOutgoing(s Settings) (outgoing, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// A path that dies silently ends before TCP gives it up, after a quarter of an hour.
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second,
		PingTimeout: 15 * time.Second}
	o := outgoing{
		client: &http.Client{Transport: transport, Timeout: 30 * time.Second}, cloud: cloud.AzurePublic,
	}
	if s.CAFile != "" {
		pool, err := readPool(s.CAFile)
		if err != nil {
			return o, err
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	if s.Azure == nil {
		return o, nil
	}
	if endpoint := s.Azure.ResourceManagerEndpoint; endpoint != "" || s.Azure.AuthorityHost != "" {
		o.cloud = cloud.Configuration{
			ActiveDirectoryAuthorityHost: s.Azure.AuthorityHost,
			Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
				cloud.ResourceManager: {Endpoint: endpoint, Audience: endpoint},
			},
		}
	}
	var secret string
	var last azcore.TokenCredential // it caches tokens
	present := reread(func() (azcore.TokenCredential, error) {
		text, err := readSecret(s.Azure.ClientSecretFile)
		if err != nil || last != nil && text == secret {
			return last, err
		}
		next, err := azidentity.NewClientSecretCredential(s.Azure.TenantID, s.Azure.ClientID, text,
			&azidentity.ClientSecretCredentialOptions{
				ClientOptions: o.options(), DisableInstanceDiscovery: s.Azure.AuthorityHost != "",
			})
		if err != nil {
			return nil, fmt.Errorf("cannot use the provider's identity: %w", err)
		}
		secret, last = text, next
		return next, nil
	})
	o.credential = presentCredential(present)
	_, err := present()
	return o, err
}

// presentCredential returns the credential of the secret that its file has now.
type presentCredential func() (azcore.TokenCredential, error)

// GetToken implements azcore.TokenCredential.
func (p presentCredential) GetToken(
	ctx context.Context, options policy.TokenRequestOptions,
) (azcore.AccessToken, error) {
	credential, err := p()
	if err != nil {
		return azcore.AccessToken{}, err
	}
	return credential.GetToken(ctx, options)
}

func (o outgoing) options() policy.ClientOptions {
	return policy.ClientOptions{
		Cloud: o.cloud, Transport: o.client,
		Retry: policy.RetryOptions{MaxRetries: 2, TryTimeout: 10 * time.Second},
	}
}

func (o outgoing) manager() *arm.ClientOptions {
	return &arm.ClientOptions{ClientOptions: o.options(), DisableRPRegistration: true}
}

// authorizer uses the settings, and Resource Manager if the provider has an identity.
func (o outgoing) authorizer(
	s Settings, index *store.Index, stored *store.Store,
) (front.Authorizer, error) {
	if o.credential == nil {
		return s.RoleAssignments, nil
	}
	factory, err := armauthorization.NewClientFactory("", o.credential, o.manager())
	if err != nil {
		return nil, fmt.Errorf("cannot ask Resource Manager for role assignments: %w", err)
	}
	roles := front.NewManagerRoles(factory, index, stored, time.Now)
	roles.Settings = s.RoleAssignments
	return roles, nil
}

func (o outgoing) sources(s Settings) *cluster.Sources {
	sources := &cluster.Sources{Bindings: s.Clusters}
	if o.credential == nil {
		return sources
	}
	sources.Manager = &cluster.ResourceManager{
		Clusters: func(subscription string) (*armcontainerservice.ManagedClustersClient, error) {
			return armcontainerservice.NewManagedClustersClient(subscription, o.credential, o.manager())
		},
		Tokens: o.credential, Admin: s.Azure.AdminCredentials, Local: s.Azure.AllowLocalClusters,
		Now: time.Now,
	}
	return sources
}

// newTracer returns a tracer that sends spans to an endpoint; nil without one. Its end flushes
// them.
func newTracer(ctx context.Context, endpoint string) (trace.Tracer, func(), error) {
	if endpoint == "" {
		return nil, func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot send traces: %w", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter))
	return provider.Tracer("flexnode-rp"), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = provider.Shutdown(ctx) // what cannot be sent now is lost; traces are no records
	}, nil
}
