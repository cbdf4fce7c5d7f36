package change

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Manner is how a provider is asked; the zero value does not ask it.
type Manner struct {
	Asks     bool
	Endpoint string
	Interval time.Duration
	Proxy    config.Proxy
	// identity names the identity with its secret. Where this process cannot read a file of it,
	// unread has what the configuration says.
	identity string
	unread   config.Azure
	// Config is what says so, with its credentials.
	Config config.Config
}

// MannerOf returns how a configuration, with its credentials, has the provider be asked.
func MannerOf(c config.Config) Manner {
	if !c.ContinuousMonitoring {
		return Manner{}
	}
	m := Manner{
		Asks:     true,
		Endpoint: cmp.Or(c.Agent.Monitoring.Endpoint, c.Azure.ResourceManagerEndpoint),
		Interval: c.PollInterval(), Proxy: c.Proxy, Config: c,
	}
	var err error
	if m.identity, err = identity.Key(c.Azure); err != nil {
		m.unread = c.Azure
		m.unread.BootstrapToken = nil
	}
	return m
}

// Same reports whether the provider is asked in the same manner.
func (m Manner) Same(o Manner) bool {
	m.Config, o.Config = config.Config{}, config.Config{}
	return reflect.DeepEqual(m, o)
}

// sameWay reports whether the way to the provider is the same, however often it is gone.
func (m Manner) sameWay(o Manner) bool {
	m.Interval = o.Interval
	return m.Same(o)
}

// ProviderScope is the scope of the tokens with which the provider is asked.
func ProviderScope(c config.Config) string {
	return strings.TrimRight(c.Azure.ResourceManagerEndpoint, "/") + "/.default"
}

// proveProvider makes sure that the provider answers this node in the manner of a configuration: a
// fresh token of the identity that polls, past every cache, and one poll. A refusal is a
// transition.Refused; any other error leaves open whether the manner works.
func proveProvider(ctx context.Context, h *Home, c config.Config, is config.Resource) error {
	m := MannerOf(c)
	if !m.Asks || is.UID == "" {
		return nil
	}
	token, err := identity.Fresh(ctx, func() (identity.Credential, error) {
		return NodeCredential(h.Agent, c)
	}, ProviderScope(c), identity.NodeToken(c.Azure))
	if identity.Refused(err) {
		return &transition.Outcome{Kind: transition.Refused, Err: err}
	}
	if err != nil {
		return err
	}
	h.Alive()
	client := ProviderClient(h.Agent, c)
	defer client.CloseIdleConnections()
	provider := follow.Resource{
		Client: client, Endpoint: m.Endpoint, ID: is.ID, UID: is.UID, Trial: true,
		Token: func(context.Context) (string, error) { return token.Value, nil },
	}
	_, err = provider.Poll(ctx, "", 0)
	if refusesNode(err) {
		return &transition.Outcome{Kind: transition.Refused, Err: fmt.Errorf("cannot follow the "+
			"resource with this configuration: %w; check agent.monitoring.endpoint, the proxy and the "+
			"identity in azure", err)}
	}
	return err
}

// refusesNode reports whether a poll has failed since the provider refuses the node, or another
// server has answered than the one that was named. Trying again does not help then. A role that is
// missing does not count: in Azure it takes effect minutes after it was assigned.
func refusesNode(err error) bool {
	if _, other := errors.AsType[x509.HostnameError](err); other {
		return true
	}
	refused, ok := errors.AsType[*follow.RefusedError](err)
	if !ok || refused.Code == "" { // something else may have answered, for now
		return false
	}
	return refused.Status == http.StatusUnauthorized || refused.Status == http.StatusNotFound
}

// tryProvider makes sure, before a machine joins, that the provider does not refuse it. A provider
// that does not answer is only warned of.
func tryProvider(ctx context.Context, h *Home, t *Target) error {
	c := t.Input.Config
	if h.Saved.Joined() || !showsWho(ctx, h, c) {
		return nil
	}
	err := proveProvider(ctx, h, c, ResourceOf(h.Agent, t.Input))
	if err == nil || transition.Of(err).Kind == transition.Refused {
		return err
	}
	h.Warn("the resource provider cannot be followed yet: %v; the machine joins nevertheless", err)
	return nil
}
