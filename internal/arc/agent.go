package arc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// AgentStatus is the connection status that the Arc agent prints; unknown ones are passed on.
type AgentStatus string

// The agent's statuses. An agent that has not reached Azure for 45 days is Expired, permanently.
const Connected, Disconnected, Expired AgentStatus = "Connected", "Disconnected", "Expired"

// Status describes this machine's registration with Azure Arc, as azcmagent shows it.
type Status struct {
	// Name, Group and Subscription are the machine's in Azure, "" if it is not registered.
	Name         string `json:"resourceName"`
	Group        string `json:"resourceGroup"`
	Subscription string `json:"subscriptionId"`
	// Agent is the agent's connection to Azure: a machine can be registered but not connected.
	Agent AgentStatus `json:"status"`
}

// Status asks the Arc agent, not Azure. The error is ErrNotInstalled if there is no agent.
func (a Arc) Status(ctx context.Context) (Status, error) {
	out, err := a.azcmagent(ctx, "show", "--json")
	if err != nil {
		return Status{}, err
	}
	var shown struct {
		Status
		Other AgentStatus `json:"agentStatus"` // a second name of status
	}
	if err := json.Unmarshal(out, &shown); err != nil {
		return Status{}, fmt.Errorf("cannot read what azcmagent shows: %w", err)
	}
	shown.Agent = cmp.Or(shown.Agent, shown.Other)
	return shown.Status, nil
}

// MachineID returns the ARM id of the machine's registration, "" if it is not registered.
func (s Status) MachineID() string {
	if s.Name == "" {
		return ""
	}
	return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/"+
		"Microsoft.HybridCompute/machines/%s", s.Subscription, s.Group, s.Name)
}

// Adopt records the Arc machine that this machine already is. It does not ask Azure: the identity
// may not be able to read its own resource. A machine that we have connected remains ours.
func (a Arc) Adopt(ctx context.Context, r Record) error {
	is, err := a.Status(ctx)
	if err != nil || r.names(is) {
		return err
	}
	r.MachineID, r.Connected = is.MachineID(), false
	return a.Save(r)
}

// Moves reports whether a configuration names another machine than the one that we have connected.
func (r Record) Moves(to config.Azure) bool {
	return r.Connected && !r.names(Status{Name: to.Arc.MachineName, Group: to.Arc.ResourceGroup,
		Subscription: to.SubscriptionID})
}

// names reports whether the record is about a machine. ARM's ids are compared without case.
func (r Record) names(is Status) bool { return strings.EqualFold(r.MachineID, is.MachineID()) }

// Assigns reports whether this program assigns the roles of the Arc identity.
func Assigns(c config.Azure) bool {
	return *cmp.Or(c.Arc.AutoRoleAssignment, new(false)) && len(c.Arc.Roles) > 0
}

// proxySetting is the setting of azcmagent; the URL is http://host:port (azcmagent config).
const proxySetting = "proxy.url"

// setProxy gives the Arc agent the configured proxy. It keeps one that others set, and removes ours
// if it is no longer configured. It does not set a URL with a user: azcmagent takes it only as an
// argument, which every user of the machine can see.
func (a Arc) setProxy(ctx context.Context, r *Record) error {
	want := a.Proxy.Reveal()
	if u, err := url.Parse(want); err != nil || u.User != nil {
		a.Warn("the proxy of the Arc agent is not set, because its URL holds a user or a password and "+
			"azcmagent accepts it only as an argument, which every user of this machine can see; set it "+
			"yourself (azcmagent config set %s)", proxySetting)
		want = ""
	}
	if want == "" && r.Proxy == "" {
		return nil
	}
	is, err := a.proxy(ctx)
	if err != nil || is == want {
		return err
	}
	if is != "" && is != r.Proxy {
		a.Warn("the Arc agent keeps its own proxy, which differs from the configured one")
		return nil
	}
	// Clear the old one before recording the new one: the current one is always known as ours.
	if err := a.clearProxy(ctx, r); err != nil || want == "" {
		return err
	}
	r.Proxy = want
	if err := a.Save(*r); err != nil {
		return err
	}
	if _, err := a.azcmagent(ctx, "config", "set", proxySetting, want); err != nil {
		return fmt.Errorf("cannot set the proxy of the Arc agent: %w", err)
	}
	return nil
}

func (a Arc) clearProxy(ctx context.Context, r *Record) error {
	if r.Proxy == "" {
		return nil
	}
	is, err := a.proxy(ctx)
	if errors.Is(err, ErrNotInstalled) {
		is, err = "", nil
	}
	if err == nil && is == r.Proxy {
		_, err = a.azcmagent(ctx, "config", "clear", proxySetting)
	}
	if err != nil {
		return fmt.Errorf("cannot remove the proxy of the Arc agent: %w", err)
	}
	r.Proxy = ""
	return a.Save(*r)
}

// proxy returns the proxy of the Arc agent; "" if it has none, or azcmagent shows no URL.
func (a Arc) proxy(ctx context.Context) (string, error) {
	out, err := a.azcmagent(ctx, "config", "get", proxySetting)
	if err != nil {
		return "", err
	}
	if text := strings.TrimSpace(string(out)); strings.HasPrefix(text, "http") {
		return text, nil
	}
	return "", nil
}
