package support

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/endpoint"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
)

// patience limits the wait for the answer of one server.
const patience = 5 * time.Second

// Endpoints lists every server that the configuration needs, and tries them. It changes nothing.
func Endpoints(ctx context.Context, a *change.Agent, given Given) ([]health.Endpoint, error) {
	p := diagnose(ctx, a, given)
	if err := p.evidence.Examined.State.Err; err != nil {
		return nil, err
	}
	if p.Saved.Live == nil && given.Input == nil {
		if given.Unprivileged && given.Err == nil {
			return nil, errors.New("cannot tell without root what this machine needs: run it with sudo, " +
				"or name a configuration with --config")
		}
		return nil, cmp.Or(given.Err, inspect.ErrNoNode)
	}
	return p.endpoints(ctx), nil
}

// endpoints tries the servers that the configuration needs, all at once.
func (p *patient) endpoints(ctx context.Context) []health.Endpoint {
	var list []health.Endpoint
	if p.Saved.Live != nil || p.given.Input != nil {
		list = endpoint.Needed(endpoint.Asked{
			Config: p.config, Joining: !p.Saved.Joined(), Server: p.at.Server,
			Arch: cmp.Or(p.seen.Arch, "amd64"), Files: p.Reader,
		})
	}
	var all sync.WaitGroup
	for i := range list {
		all.Go(func() { p.try(ctx, &list[i]) })
	}
	all.Wait()
	return list
}

func (p *patient) try(ctx context.Context, e *health.Endpoint) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.Patience, patience))
	defer cancel()
	t := kube.Target{Server: e.URL, Name: e.Purpose, Options: p.Home.Options(p.config)}
	if e.Cluster {
		t.CA, t.Name = []byte(p.at.CA), ""
	}
	if strings.Contains(e.Purpose, endpoint.Provider) {
		t.Roots = change.ProviderRoots(p.Agent, p.config)
	}
	if e.URL == endpoint.Metadata {
		t.Proxy = nil // it is on the machine's own link
	}
	e.Reached, e.Err = kube.Reach(ctx, t)
}
