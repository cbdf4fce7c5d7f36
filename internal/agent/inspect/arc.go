package inspect

import (
	"context"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// ArcFile is the record of the enrolment, below saved.StateDir.
const ArcFile = access.RecordFile

// ArcKey names the enrolment among the things that drift.
const ArcKey state.Key = "arc:machine"

// arcEvidence asks the Arc agent, and not Azure, how the machine stands. An answer that was slow to
// come stands for a while, unless the machine has to be enrolled again.
func arcEvidence(ctx context.Context, h *Node, c config.Config) health.Answer[health.Arc] {
	if c.Azure.AuthMode() != config.AuthArc {
		return health.Answer[health.Arc]{}
	}
	if last := h.shown; last.answer.Asked && time.Since(last.at) < arcStands {
		return last.answer
	}
	began := time.Now()
	is := health.Answered(access.Standing(ctx, h, h.Saved, c))
	h.shown = shownArc{}
	if time.Since(began) > arcSlow && !is.Value.Lost {
		h.shown = shownArc{answer: is, at: time.Now()}
	}
	return is
}

// arcSlow is the longest time of a quick Arc agent, arcStands how long a slow answer stands.
const (
	arcSlow   = 3 * time.Second
	arcStands = 10 * time.Minute
)

// shownArc is the last answer of an Arc agent that was slow.
type shownArc struct {
	answer health.Answer[health.Arc]
	at     time.Time
}

// roleEvidence asks whether kubelet's identity still has its roles.
func roleEvidence(
	ctx context.Context, h *Node, c config.Config, at Cluster, seen health.Answer[kube.Node],
) health.Answer[bool] {
	if c.Azure.AuthMode() != config.AuthArc || !c.Azure.ShowsToken() ||
		!seen.OK() && !kube.Answered(seen.Err) {
		return health.Answer[bool]{}
	}
	token, err := access.Shown(ctx, h, c)
	if err != nil {
		return health.Answer[bool]{}
	}
	return health.Answered(access.Authorised(ctx, h, c, at, token))
}

// arcLost returns how an enrolment fails that has to be made again; "" where none does.
func arcLost(e health.Evidence) string {
	switch {
	case e.Arc.OK() && e.Arc.Value.Lost:
		return "not accepted by Azure"
	case e.Authorised.OK() && !e.Authorised.Value:
		return "without its roles"
	}
	return ""
}

// withArc adds how the enrolment of the applied node is, whose Node was seen.
func withArc(ctx context.Context, h *Node, e *health.Evidence) {
	if h.Saved.Applied.Config.Azure.AuthMode() != config.AuthArc {
		return
	}
	c := h.Saved.ConfigOf(h.Saved.Applied)
	e.Arc = health.Answered(access.Standing(ctx, h, h.Saved, c))
	e.Authorised = roleEvidence(ctx, h, c, h.Saved.At(), e.Node)
}

// ArcLost reports whether the applied node has to be enrolled again.
func ArcLost(ctx context.Context, h *Node) bool {
	if h.Saved.Applied == nil || h.Saved.Applied.Config.Azure.AuthMode() != config.AuthArc {
		return false
	}
	e := health.Evidence{Node: SeeNode(ctx, h)}
	withArc(ctx, h, &e)
	return arcLost(e) != ""
}

// ownArc reports whether the Arc agent is ours: the ledger remembers it, or no one has installed
// one.
func ownArc(ctx context.Context, h *Node) (bool, error) {
	key := state.PackageKey(node.ArcPackage)
	if _, ours := h.ledger.Ledger().Entry(key); ours {
		return true, nil
	}
	is, err := h.Reader.Observe(ctx, key)
	if err != nil {
		return false, err
	}
	return is.(state.Package).State != state.PackageInstalled, nil
}

// WithArc are bindings that tell whose the Arc agent is. Only a node that has one is asked.
func WithArc(
	ctx context.Context, h *Node, d state.Desired, b node.Bindings,
) (node.Bindings, error) {
	asks := slices.ContainsFunc(d, func(item state.Item) bool { return item.Only == node.OwnArc })
	if !asks {
		return b, nil
	}
	own, err := ownArc(ctx, h)
	b.ForeignArc = !own
	return b, err
}

// StandingArc returns what remains of our Arc agent on a node without one: only leaving takes back
// the registration.
func StandingArc(h *Node) state.Desired {
	return h.ledger.Ledger().As(func(e state.Entry) bool { return e.Step == state.Arc })
}

// EnrolledBefore reports whether the machine was enrolled with Arc by an earlier run.
func EnrolledBefore(h *Node) bool {
	record, err := access.Record(h.Saved)
	return err == nil && record.MachineID != "" && h.Saved.Live != nil
}
