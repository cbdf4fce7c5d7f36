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

// Manner describes how a provider is polled; the zero value does not poll.
type Manner struct {
	Asks     bool
	Signs    bool // with the machine's key, for the provider's own listener
	Endpoint string
	Interval time.Duration
	Proxy    config.Proxy
	// identity names the identity with its secret. If this process cannot read its file, unread holds
	// the configured section instead.
	identity string
	unread   config.Azure
	Config   config.Config // the configuration behind these settings, with its credentials
}

// MannerOf returns how a configuration, with its credentials, polls the provider.
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

// Same reports whether both manners are the same.
func (m Manner) Same(o Manner) bool {
	m.Config, o.Config = config.Config{}, config.Config{}
	return reflect.DeepEqual(m, o)
}

// SameWay reports whether both manners are the same except for the interval.
func (m Manner) SameWay(o Manner) bool {
	m.Interval = o.Interval
	return m.Same(o)
}

// Scope returns the scope of the provider's tokens. Tokens for Resource Manager are never sent to
// the provider's own listener.
func Scope(c config.Config) (string, error) {
	to, audience := c.Agent.Monitoring, c.Azure.ResourceManagerEndpoint
	if to.Endpoint != "" && to.Endpoint != config.ResourceManager {
		audience = to.Audience
	}
	if audience == "" {
		return "", errors.New("agent.monitoring.audience is not set: it is the application for which " +
			"the node's identity gets a token for " + to.Endpoint + "; a configuration URL of the " +
			"provider needs none")
	}
	return strings.TrimRight(audience, "/") + "/.default", nil
}

// refusesNode reports whether the provider refuses the node for good, or another server has
// answered. A missing role does not count: it takes effect minutes after its assignment.
func refusesNode(err error) bool {
	if _, other := errors.AsType[x509.HostnameError](err); other {
		return true
	}
	refused, ok := errors.AsType[*RefusedError](err)
	return ok && refused.Code != "" && // without one, something else may have answered, temporarily
		(refused.Status == http.StatusUnauthorized || refused.Status == http.StatusNotFound ||
			IsSecond(err))
}

const (
	formerAfter = 15 * time.Minute // the time of failing polls after which the former way is tried
	formerFor   = 5 * time.Minute  // the time after which the configured way is tried again
)

// Ways holds the ways to poll the provider: the configured one, and, until that has been answered,
// in turns the former one. Otherwise a change that cuts a node off could not be reverted.
type Ways struct {
	current, former Manner // former is zero if current is the only way
	Asked           Manner // the one of the two in use since turned
	Back            bool   // Asked is the former one
	turned          time.Time
	answered        bool      // a poll in the current manner was answered
	failing         time.Time // the time since when none was
}

// NewWays returns the ways of a provider that is polled in one manner.
func NewWays(m Manner) Ways { return Ways{current: m, Asked: m} }

// Settle sets both manners. It reports whether current was answered, and whether it changed.
func (w *Ways) Settle(current, former Manner) (answered, changed bool) {
	w.former = former
	if current.Same(w.current) {
		return w.answered, false
	}
	w.current, w.answered, w.failing = current, false, time.Time{}
	return false, true
}

// Asks reports whether the configuration polls the provider.
func (w *Ways) Asks() bool { return w.current.Asks }

func (w *Ways) overdue() bool {
	return w.former.Asks && !w.failing.IsZero() && time.Since(w.failing) >= formerAfter
}

// Turn chooses the next manner, and reports whether it is the former one.
func (w *Ways) Turn() (back bool) {
	w.Back = !w.Back && w.overdue()
	if w.Asked = w.current; w.Back {
		w.Asked = w.former
	}
	w.turned = time.Now()
	return w.Back
}

// Polled records the result of a poll, and reports whether it is time for the next turn.
func (w *Ways) Polled(err error) bool {
	switch {
	case w.Back:
		return time.Since(w.turned) >= formerFor
	case !w.Asked.Same(w.current): // Settle has changed the manner during the poll
		return false
	case err == nil:
		w.answered, w.failing = true, time.Time{}
	case w.failing.IsZero():
		w.failing = time.Now()
	}
	return err != nil && w.overdue()
}
