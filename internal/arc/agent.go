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

// AgentStatus is the connection status that the Arc agent prints; other words are passed on.
type AgentStatus string

// The agent's own words. An agent that has not reached Azure for 45 days is Expired, for good.
const Connected, Disconnected, Expired AgentStatus = "Connected", "Disconnected", "Expired"

// Status describes this machine's registration with Azure Arc, as azcmagent shows it.
type Status struct {
	// Name, Group and Subscription are the machine's in Azure, "" when it is not registered.
	Name         string `json:"resourceName"`
	Group        string `json:"resourceGroup"`
	Subscription string `json:"subscriptionId"`
	// Agent is whether the agent reaches Azure: a machine can be registered and not connected.
	Agent AgentStatus `json:"status"`
}

// Status asks the Arc agent, not Azure. The error is ErrNotInstalled where there is no agent.
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

// MachineID is the ARM id under which the machine is registered, "" when it is not.
func (s Status) MachineID() string {
	if s.Name == "" {
		return ""
	}
	return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/"+
		"Microsoft.HybridCompute/machines/%s", s.Subscription, s.Group, s.Name)
}

// Adopt records the machine that this one is already, of which only Azure's own word is not asked
// for: it speaks for itself, and may not read its resource. One that we have connected remains
// ours.
func (a Arc) Adopt(ctx context.Context, r Record) error {
	is, err := a.Status(ctx)
	if err != nil || r.names(is) {
		return err
	}
	r.MachineID, r.Connected = is.MachineID(), false
	return a.Save(r)
}

// names reports whether the record is about a machine. ARM's ids are compared without case.
func (r Record) names(is Status) bool { return strings.EqualFold(r.MachineID, is.MachineID()) }

// Assigns reports whether this program gives the Arc identity its roles.
func Assigns(c config.Azure) bool {
	auto := c.Arc.AutoRoleAssignment
	return auto != nil && *auto && len(c.Arc.Roles) > 0
}

// proxySetting is the setting of azcmagent; the URL is http://host:port (azcmagent config).
const proxySetting = "proxy.url"

// setProxy gives the Arc agent the configured proxy. One that was set by others is kept; ours is
// taken away when it is no longer configured. A URL with a user in it is not set: azcmagent takes
// it only as an argument, and those are seen by every user of the machine.
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
	// The old one is cleared before the new one is recorded: what is there is always known as ours.
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

// proxy is the proxy that the Arc agent has; "" when it has none, or azcmagent shows no URL.
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
