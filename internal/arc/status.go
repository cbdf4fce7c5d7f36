package arc

import (
	"cmp"
	"context"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/identity"
)

// AgentStatus is what the Arc agent says of its connection; other words than these are passed on.
type AgentStatus string

// The agent's own words. An agent that has not reached Azure for 45 days is Expired, for good.
const (
	Connected    AgentStatus = "Connected"
	Disconnected AgentStatus = "Disconnected"
	Expired      AgentStatus = "Expired"
)

// Status is how this machine and Azure Arc stand, as far as the agent knows.
type Status struct {
	// MachineID is the ARM id under which the machine is registered, "" when it is not.
	MachineID string
	// Agent is whether the agent reaches Azure: a machine can be registered and not connected.
	Agent AgentStatus
	// Version is the agent's.
	Version string
}

// Status asks the Arc agent; it asks nothing of Azure. The error is ErrNotInstalled where there is
// no agent.
func (a Arc) Status(ctx context.Context) (Status, error) {
	is, err := a.show(ctx)
	if err != nil {
		return Status{}, err
	}
	s := Status{Agent: is.agent(), Version: is.AgentVersion}
	if is.registered() {
		s.MachineID = is.id()
	}
	return s, nil
}

// agent is the status under either of its names in the output of azcmagent.
func (s shown) agent() AgentStatus { return AgentStatus(cmp.Or(s.Status, s.AgentStatus)) }

// Enrolled reports whether all that an earlier Enrol has done is still so: the machine is
// registered as recorded, its identity has not expired, Azure knows it, and it has its roles. It
// changes nothing and costs two requests. False means that Enrol has something to do.
func (a Arc) Enrolled(ctx context.Context, r Record) (bool, error) {
	is, err := a.show(ctx)
	if err != nil || !is.registered() || !r.names(is) || is.agent() == Expired {
		return false, err
	}
	principal, found, err := a.find(ctx, is)
	if err != nil || !found || principal == "" || !a.assigns() {
		return err == nil && found && principal != "", err
	}
	return a.assigned(ctx, principal)
}

// Adopt records the machine that this one is already, of which only Azure's own word is not asked
// for: it speaks for itself, and may not read its resource. One that we have connected remains
// ours.
func (a Arc) Adopt(ctx context.Context, r Record) error {
	is, err := a.show(ctx)
	if err != nil || r.names(is) {
		return err
	}
	r.MachineID, r.Connected = is.id(), false
	return a.Save(r)
}

// names reports whether the record is about a machine. ARM's ids are compared without case.
func (r Record) names(is shown) bool { return strings.EqualFold(r.MachineID, is.id()) }

// assigns reports whether roles are given by this program.
func (a Arc) assigns() bool {
	auto := a.Config.Arc.AutoRoleAssignment
	return auto != nil && *auto
}

// need is what reading and connecting the machine takes.
func (s shown) need() identity.Need {
	return identity.Need{Doing: "read the Arc machine", Role: onboarding, Scope: s.id()}
}
