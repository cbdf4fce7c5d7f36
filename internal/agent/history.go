package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/daemon"
	"github.com/Azure/AKSFlexNode/internal/generation"
)

// What a generation is to the machine.
const (
	StateApplied  = "applied"  // proved healthy, and the machine is this one
	StatePrevious = "previous" // proved before that; with its artifacts
	StateKept     = "kept"     // proved before; its artifacts may have to be fetched again
	StateRejected = "rejected" // not tried again until the content changes or a person asks
	StateChanging = "changing" // being applied
	StateReceived = "received" // not tried yet
)

// Past is one line of the history of a machine.
type Past struct {
	// Generation is "" for what is not rendered yet.
	Generation string     `json:"generation,omitempty"`
	At         *time.Time `json:"at,omitempty"`
	// Origin tells where the configuration came from, Resource and Version from which flexNodeConfig.
	Origin   string `json:"origin,omitempty"`
	Resource string `json:"resource,omitempty"`
	Version  string `json:"configVersion,omitempty"`
	// Agent is the version of the program that rendered it, Kubernetes that of kubelet.
	Agent      string `json:"agent,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
	State      string `json:"state"`
	Reason     string `json:"reason,omitempty"`
}

// History lists the generations that this machine has had, the newest first, and what it has
// received and is not.
func (a *Agent) History(ctx context.Context) ([]Past, error) {
	h, err := a.openReadOnly(ctx)
	if err != nil {
		return nil, err
	}
	if h.saved.Live == nil && h.saved.Transition == nil {
		return nil, errNoNode
	}
	list, err := h.saved.ReadHistory()
	if err != nil {
		return nil, err
	}
	kept, err := h.kept(ctx, list)
	if err != nil {
		return nil, err
	}
	past := append(h.pending(), kept...) // before those that were rejected in the same second
	for _, r := range h.saved.Rejected {
		past = append(past, pastOf(r))
	}
	slices.SortStableFunc(past, func(a, b Past) int { return b.when().Compare(a.when()) })
	return past, nil
}

// when orders the history: what is not over yet is the newest.
func (p Past) when() time.Time {
	switch {
	case p.At != nil:
		return *p.At
	case p.State == StateReceived:
		return time.Unix(1<<40, 0)
	}
	return time.Time{}
}

// pending is what the machine is to become: by a change that is under way, or since it was received
// and has to wait.
func (h *home) pending() []Past {
	received, applied := h.records().BundleResource(), h.appliedResource()
	if t := h.saved.Transition; t != nil && t.To != "" && t.To != t.From {
		p := Past{Generation: t.To, At: &t.Began, State: StateChanging,
			Reason: fmt.Sprintf("%s, phase %s", t.Kind, t.Phase)}
		if g, err := h.saved.Generations.Load(t.To); err == nil {
			p.describe(&g)
		}
		return []Past{p}
	}
	if received.ConfigVersion == "" || received == applied {
		return nil
	}
	if digest, err := h.records().BundleDigest(); err == nil {
		if _, rejected := h.saved.Rejected.Of(digest); rejected {
			return nil
		}
	}
	p := Past{Origin: "url", Resource: received.ID, Version: received.ConfigVersion,
		State: StateReceived}
	if w := h.readWaiting(); w != nil {
		p.Reason = w.Reason + ": " + daemon.FirstLine(w.Message)
	}
	return []Past{p}
}

// pastOf is a rejection as a line of the history.
func pastOf(r saved.Rejection) Past {
	return Past{
		Generation: r.Generation, At: &r.At, Origin: r.Origin.Kind, Agent: r.Origin.Agent,
		Resource: r.Resource.ID, Version: r.Resource.ConfigVersion, Kubernetes: r.Kubernetes,
		State: StateRejected, Reason: daemon.FirstLine(r.Reason),
	}
}

// kept are the generations that are on this machine and were proved healthy.
func (h *home) kept(ctx context.Context, list saved.History) ([]Past, error) {
	previous, err := h.saved.Generations.Target(ctx, generation.Previous)
	if err != nil {
		return nil, err
	}
	ids := list.IDs()
	for _, id := range []string{previous, h.saved.AppliedID()} {
		if id != "" && !slices.Contains(ids, id) { // the history could not be read
			ids = append(ids, id)
		}
	}
	var past []Past
	for _, id := range slices.Backward(ids) {
		g, err := h.saved.Generations.Load(id)
		if err != nil {
			h.Log.Debug("a generation is not kept", "generation", id, "error", err)
			continue
		}
		p := Past{Generation: id, State: StateKept}
		p.describe(&g)
		known, _ := list.Last(id)
		if !known.At.IsZero() {
			p.At = &known.At
		}
		from := known.Resource
		switch id {
		case h.saved.AppliedID():
			p.State, from = StateApplied, h.appliedResource()
		case previous:
			p.State = StatePrevious
		}
		p.Resource, p.Version = from.ID, from.ConfigVersion
		past = append(past, p)
	}
	return past, nil
}

func (p *Past) describe(g *generation.Generation) {
	p.Origin, p.Agent, p.Kubernetes = g.Origin.Kind, g.Origin.Agent, g.Config.Kubernetes.Version
}

// find returns the kept generation that a name stands for: applied, previous, live, or the first
// letters of its id.
func (h *home) find(ctx context.Context, name string) (*generation.Generation, error) {
	pointers := []generation.Pointer{generation.Live, generation.Applied, generation.Previous}
	if p := generation.Pointer(name); slices.Contains(pointers, p) {
		g, err := h.saved.Generations.Read(ctx, p)
		if err == nil && g == nil {
			err = fmt.Errorf("cannot find the %s generation: there is none yet", name)
		}
		return g, err
	}
	ids, err := h.saved.Generations.IDs()
	if err != nil {
		return nil, err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return !strings.HasPrefix(id, name) })
	switch {
	case len(ids) == 1:
		g, err := h.saved.Generations.Load(ids[0])
		return &g, err
	case len(ids) > 1:
		return nil, fmt.Errorf("cannot tell which generation %q is: %d begin so", name, len(ids))
	}
	return nil, fmt.Errorf("cannot find generation %q: `aks-flex-node history` lists those that are "+
		"kept", name)
}

// Comparison is what differs between two generations.
type Comparison struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Config are the settings that differ, Changes what a change from one to the other would do.
	Config  []config.Difference `json:"config"`
	Changes []Entry             `json:"changes"`
}

// Compare tells what differs between two kept generations: by default between the previous and the
// applied one. Both are taken as they would be on this machine now.
func (a *Agent) Compare(ctx context.Context, from, to string) (Comparison, error) {
	h, err := a.openReadOnly(ctx)
	if err != nil {
		return Comparison{}, err
	}
	if h.saved.Live == nil {
		return Comparison{}, errNoNode
	}
	before, err := h.find(ctx, cmp.Or(from, string(generation.Previous)))
	if err != nil {
		return Comparison{}, err
	}
	after, err := h.find(ctx, cmp.Or(to, string(generation.Applied)))
	if err != nil {
		return Comparison{}, err
	}
	settings, err := before.Config.Differences(after.Config)
	if err != nil {
		return Comparison{}, err
	}
	if settings == nil {
		settings = []config.Difference{}
	}
	return Comparison{
		From: before.ID, To: after.ID, Config: settings, Changes: h.between(before, after),
	}, nil
}
