package agent

import (
	"context"
	"strings"
	"time"

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

// arcEvidence asks the Arc agent how the machine stands. It asks nothing of Resource Manager. An
// answer that was slow to come stands for a while, unless the machine has to be enrolled again.
func (h *home) arcEvidence(ctx context.Context, c config.Config) health.Answer[health.Arc] {
	if c.Azure.AuthMode() != config.AuthArc {
		return health.Answer[health.Arc]{}
	}
	if last := h.shown; last.answer.Asked && time.Since(last.at) < arcStands {
		return last.answer
	}
	began := time.Now()
	is := health.Answered(h.arcStanding(ctx, c))
	h.shown = shownArc{}
	if time.Since(began) > arcSlow && !is.Value.Lost {
		h.shown = shownArc{answer: is, at: time.Now()}
	}
	return is
}

// arcSlow is how long a quick Arc agent takes at most, and arcStands how long the answer of a slow
// one stands.
const (
	arcSlow   = 3 * time.Second
	arcStands = 10 * time.Minute
)

// shownArc is the last answer of an Arc agent that was slow.
type shownArc struct {
	answer health.Answer[health.Arc]
	at     time.Time
}

// roleEvidence asks a cluster that answers whether the identity that kubelet shows still has its
// roles.
func (h *home) roleEvidence(
	ctx context.Context, c config.Config, at where, seen health.Answer[kube.Node],
) health.Answer[bool] {
	if c.Azure.AuthMode() != config.AuthArc || !c.Azure.ShowsToken() ||
		!seen.OK() && !kube.Answered(seen.Err) {
		return health.Answer[bool]{}
	}
	token, err := h.shownToken(ctx, c)
	if err != nil {
		return health.Answer[bool]{}
	}
	return health.Answered(h.authorised(ctx, c, at, token))
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
	c := h.saved.ConfigOf(h.saved.Applied)
	return arcDrift(health.Evidence{
		Arc:        health.Answered(h.arcStanding(ctx, c)),
		Authorised: h.roleEvidence(ctx, c, h.saved.At(), h.seeNode(ctx)),
	})
}

// arcRole is what the identity of an Arc machine needs in the cluster.
func arcRole(c config.Config) string {
	_, role := requiredAccess(c)
	return role
}
