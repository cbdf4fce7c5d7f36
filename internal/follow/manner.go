package follow

import (
	"crypto/x509"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

// Manner describes the way to ask a provider; the zero value does not ask it.
type Manner struct {
	Asks bool
	// Signs tells that the provider's own listener is asked, with the machine's key.
	Signs    bool
	Endpoint string
	Interval time.Duration
	Proxy    config.Proxy
	// identity names the identity with its secret. Where this process cannot read a file of it,
	// unread has what the configuration says.
	identity string
	unread   config.Azure
	Config   config.Config // the configuration that says so, with its credentials
}

// MannerOf returns how a configuration, with its credentials, has the provider be asked.
func MannerOf(c config.Config) Manner {
	if !c.ContinuousMonitoring {
		return Manner{}
	}
	m := Manner{
		Asks: true, Endpoint: c.Agent.Monitoring.Endpoint,
		Interval: c.PollInterval(), Proxy: c.Proxy, Config: c,
	}
	if m.Signs = m.Endpoint != "" && m.Endpoint != config.ResourceManager; m.Signs {
		return m
	}
	m.Endpoint = c.Azure.ResourceManagerEndpoint
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

// SameWay reports whether the way to the provider is the same, however often it is gone.
func (m Manner) SameWay(o Manner) bool {
	m.Interval = o.Interval
	return m.Same(o)
}

// Scope returns the scope of the provider's tokens. Its own listener sees no token for Resource
// Manager, with which it could act for the node.
func Scope(c config.Config) (string, error) {
	to, audience := c.Agent.Monitoring, c.Azure.ResourceManagerEndpoint
	if to.Endpoint != "" && to.Endpoint != config.ResourceManager {
		audience = to.Audience
	}
	if audience == "" {
		return "", errors.New("agent.monitoring.audience is not set: it is the application for which the " +
			"node's identity gets a token for " + to.Endpoint + "; a configuration URL of the provider " +
			"needs none")
	}
	return strings.TrimRight(audience, "/") + "/.default", nil
}

// refusesNode reports whether the provider refuses the node for good, or another server has
// answered. A role that is missing does not count: it takes effect minutes after it was assigned.
func refusesNode(err error) bool {
	if _, other := errors.AsType[x509.HostnameError](err); other {
		return true
	}
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok || refused.Code == "" { // something else may have answered, for now
		return false
	}
	return refused.Status == http.StatusUnauthorized || refused.Status == http.StatusNotFound ||
		IsSecond(err)
}
