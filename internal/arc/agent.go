package arc

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// AgentStatus is the connection status that the Arc agent prints; other words than these are passed
// on.
type AgentStatus string

// The agent's own words. An agent that has not reached Azure for 45 days is Expired, for good.
const (
	Connected    AgentStatus = "Connected"
	Disconnected AgentStatus = "Disconnected"
	Expired      AgentStatus = "Expired"
)

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
