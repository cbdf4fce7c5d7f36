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

// Scope returns the scope of the provider's tokens. Its own listener gets none for Resource
// Manager.
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

const (
	// formerAfter is for how long polls fail before the provider is asked in the former way too.
	formerAfter = 15 * time.Minute
	// formerFor is for how long it is asked in that way until the configured one is tried again.
	formerFor = 5 * time.Minute
)

// Ways holds the ways to ask the provider: the configured one, and, until it has answered in that,
// in turns the former one. A change that cuts a node off could not be taken back otherwise.
type Ways struct {
	current, former Manner // former is the zero value where current is the only way
	// Asked is the one of the two that is in use since turned; Back means the former.
	Asked  Manner
	Back   bool
	turned time.Time
	// answered tells that a poll in this manner was answered, failing since when none was.
	answered bool
	failing  time.Time
}

// NewWays are those of a provider that is asked in one manner.
func NewWays(m Manner) Ways { return Ways{current: m, Asked: m} }

// Settle sets both manners. It reports whether current has answered, and whether it is another.
func (w *Ways) Settle(current, former Manner) (answered, changed bool) {
	w.former = former
	if current.Same(w.current) {
		return w.answered, false
	}
	w.current, w.answered, w.failing = current, false, time.Time{}
	return false, true
}

// Asks reports whether the provider is asked as the configuration says.
func (w *Ways) Asks() bool { return w.current.Asks }

func (w *Ways) overdue() bool {
	return w.former.Asks && !w.failing.IsZero() && time.Since(w.failing) >= formerAfter
}

// Turn decides how the provider is asked next, and reports whether that is the former manner.
func (w *Ways) Turn() (back bool) {
	w.Back = !w.Back && w.overdue()
	if w.Asked = w.current; w.Back {
		w.Asked = w.former
	}
	w.turned = time.Now()
	return w.Back
}

// Polled takes in how a poll has ended, and reports whether it is time for the next turn.
func (w *Ways) Polled(err error) bool {
	switch {
	case w.Back:
		return time.Since(w.turned) >= formerFor
	case !w.Asked.Same(w.current): // another manner was settled upon during the poll
		return false
	case err == nil:
		w.answered, w.failing = true, time.Time{}
	case w.failing.IsZero():
		w.failing = time.Now()
	}
	return err != nil && w.overdue()
}
