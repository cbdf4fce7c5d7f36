package service

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/host"
)

// hanging is an identity whose issuer does not answer.
type hanging struct{ asked chan struct{} }

func (h hanging) GetToken(
	ctx context.Context, _ policy.TokenRequestOptions,
) (azcore.AccessToken, error) {
	close(h.asked)
	<-ctx.Done()
	return azcore.AccessToken{}, ctx.Err()
}

// While a token for a poll is awaited, which may take minutes, the daemon's worker goes on: it
// reports what it has found, and takes up another way to ask the provider.
func TestNobodyWaitsForAToken(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	c := config.Config{ContinuousMonitoring: true}
	c.Azure.ResourceManagerEndpoint = "https://management.azure.com"
	c.Azure.ServicePrincipal = &config.ServicePrincipal{ClientID: "x", ClientSecret: "y"}
	machine := host.New(t.TempDir(), log)
	a := &change.Agent{Env: inspect.Env{Reader: machine, Log: log}, Machine: machine}
	in := change.Input{Config: c, Resource: &config.Resource{ID: "/x", UID: "u"}}
	issuer := hanging{make(chan struct{})}
	a.Identity = func(config.Config) (azcore.TokenCredential, error) { return issuer, nil }
	f := Follow(t.Context(), a, in, nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := f.token(ctx)
		ended <- err
	}()
	select {
	case <-issuer.asked:
	case err := <-ended:
		t.Fatal(err)
	}
	f.told(inspect.Status{})
	f.Unusable("8", errors.New("of another node"))
	c.Agent.Monitoring.Interval = "20s"
	f.change(follow.MannerOf(c), follow.Manner{})
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}
