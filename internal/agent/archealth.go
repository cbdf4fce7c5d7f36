package agent

import (
	"context"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/arc"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// arcKey names the enrolment among the things that drift.
const arcKey state.Key = "arc:machine"

// arcEvidence asks the Arc agent how the machine stands, and a cluster that answers whether the
// identity that kubelet shows still has its roles. It asks nothing of Resource Manager.
func (h *home) arcEvidence(ctx context.Context, c config.Config, at where, e *health.Evidence) {
	if c.Azure.AuthMode() != config.AuthArc {
		return
	}
	e.Arc = health.Answered(h.arcStanding(ctx, c))
	if !c.Azure.ShowsToken() || !e.Node.OK() && !kube.Answered(e.Node.Err) {
		return
	}
	if token, err := h.shownToken(ctx, c); err == nil {
		var may bool
		may, err = h.authorised(ctx, c, at, token)
		e.Authorised = health.Answered(may, err)
	}
}

// arcStanding is what the Arc agent says, compared with what was recorded.
func (h *home) arcStanding(ctx context.Context, c config.Config) (health.Arc, error) {
	var record arc.Record
	if _, err := h.saved.Load(saved.ArcFile, &record); err != nil {
		return health.Arc{}, err
	}
	s, err := h.arc(c, nil).Status(ctx)
	if err != nil {
		return health.Arc{}, err
	}
	a := health.Arc{Machine: s.MachineID, Recorded: record.MachineID, Agent: string(s.Agent)}
	switch s.Agent {
	case arc.Connected:
	case arc.Expired:
		a.Refused = true
	default:
		_, err := freshToken(ctx, c)
		a.Refused = identity.Refused(err)
	}
	a.Lost = s.MachineID == "" || a.Refused || !strings.EqualFold(s.MachineID, record.MachineID)
	return a, nil
}

// arcDrift lists an enrolment that has to be made anew as drift.
func arcDrift(e health.Evidence) []Entry {
	lost := e.Arc.OK() && e.Arc.Value.Lost
	if !lost && !(e.Authorised.OK() && !e.Authorised.Value) {
		return nil
	}
	found := "not accepted by Azure"
	if !lost {
		found = "without its roles"
	}
	return []Entry{{Key: arcKey, Step: state.Arc, Action: "enrol the machine with Azure Arc again",
		Expected: "connected and authorised", Found: found}}
}

// arcLost are the entries of arcDrift for the applied node, as the machine is now.
func (h *home) arcLost(ctx context.Context) []Entry {
	if h.saved.Applied == nil || h.saved.Applied.Config.Azure.AuthMode() != config.AuthArc {
		return nil
	}
	e, c := health.Evidence{Node: h.seeNode(ctx)}, h.saved.ConfigOf(h.saved.Applied)
	h.arcEvidence(ctx, c, h.saved.At(), &e)
	return arcDrift(e)
}

// arcRole is what the identity of an Arc machine needs in the cluster.
func arcRole(c config.Config) string {
	_, role := requiredAccess(c)
	return role
}
