package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
)

// historyFile has when generations were proved healthy.
const historyFile = "history.json"

// mostGenerations is how many generations are kept. Artifacts are kept of two: the applied one and
// the one before.
const mostGenerations = 5

// proved is a generation that was proved healthy, once.
type proved struct {
	Generation string `json:"generation"`
	// At is when.
	At time.Time `json:"at,omitzero"`
	// Resource is what the machine ran on when it left this generation; zero until then.
	Resource config.Resource `json:"resource,omitzero"`
}

// history is the applied generation, which is the last one, and those that were before it.
type history []proved

func (h *home) readHistory() (history, error) {
	var list history
	_, err := h.records.load(historyFile, &list)
	return list, err
}

// last is when a generation was proved last; false when that is not known.
func (list history) last(id string) (proved, bool) {
	for _, p := range slices.Backward(list) {
		if p.Generation == id {
			return p, true
		}
	}
	return proved{}, false
}

// next is the history once a generation is proved, after one that ran with a resource. Each is in
// it once.
func (list history) next(from, to string, ran config.Resource, at time.Time) history {
	if len(list) > 0 && list[len(list)-1].Generation == to {
		return list
	}
	before, _ := list.last(from)
	again, _ := list.last(to)
	rest := slices.DeleteFunc(slices.Clone(list), func(p proved) bool {
		return p.Generation == from || p.Generation == to
	})
	if from != "" && from != to {
		rest = append(rest, proved{Generation: from, At: before.At, Resource: ran})
	}
	rest = append(rest, proved{Generation: to, At: at, Resource: again.Resource})
	return rest[max(0, len(rest)-mostGenerations):]
}

// ids are the generations of the history.
func (list history) ids() []string {
	ids := make([]string, len(list))
	for i, p := range list {
		ids[i] = p.Generation
	}
	return ids
}

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
	if h.live == nil && h.transition == nil {
		return nil, errNoNode
	}
	list, err := h.readHistory()
	if err != nil {
		return nil, err
	}
	past := h.pending()
	for _, r := range h.rejected {
		past = append(past, r.past())
	}
	kept, err := h.kept(ctx, list)
	if err != nil {
		return nil, err
	}
	past = append(past, kept...)
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
	received, applied := h.receivedResource(), h.appliedResource()
	if t := h.transition; t != nil && t.To != "" && t.To != t.From {
		p := Past{Generation: t.To, At: &t.Began, State: StateChanging,
			Reason: fmt.Sprintf("%s, phase %s", t.Kind, t.Phase)}
		if g, err := h.store.Load(t.To); err == nil {
			p.describe(&g)
		}
		return []Past{p}
	}
	if received.ConfigVersion == "" || received == applied {
		return nil
	}
	if digest, err := h.bundleDigest(); err == nil {
		if _, rejected := h.rejection(digest); rejected {
			return nil
		}
	}
	return []Past{{Origin: "url", Resource: received.ID, Version: received.ConfigVersion,
		State: StateReceived}}
}

// past is a rejection as a line of the history.
func (r Rejection) past() Past {
	return Past{
		Generation: r.Generation, At: &r.At, Origin: r.Origin.Kind, Agent: r.Origin.Agent,
		Resource: r.Resource.ID, Version: r.Resource.ConfigVersion, Kubernetes: r.Kubernetes,
		State: StateRejected, Reason: firstLine(r.Reason),
	}
}

// kept are the generations that are on this machine and were proved healthy.
func (h *home) kept(ctx context.Context, list history) ([]Past, error) {
	previous, err := h.store.Target(ctx, generation.Previous)
	if err != nil {
		return nil, err
	}
	ids := list.ids()
	for _, id := range []string{previous, h.appliedID()} {
		if id != "" && !slices.Contains(ids, id) { // the history could not be read
			ids = append(ids, id)
		}
	}
	var past []Past
	for _, id := range slices.Backward(ids) {
		g, err := h.store.Load(id)
		if err != nil {
			h.Log.Debug("a generation is not kept", "generation", id, "error", err)
			continue
		}
		p := Past{Generation: id, State: StateKept}
		p.describe(&g)
		known, _ := list.last(id)
		if !known.At.IsZero() {
			p.At = &known.At
		}
		from := known.Resource
		switch id {
		case h.appliedID():
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

// appliedID is the generation that was proved healthy last; "" for none.
func (m *memory) appliedID() string {
	if m.applied == nil {
		return ""
	}
	return m.applied.ID
}

// find returns the kept generation that a name stands for: applied, previous, live, or the first
// letters of its id.
func (h *home) find(ctx context.Context, name string) (*generation.Generation, error) {
	pointers := []generation.Pointer{generation.Live, generation.Applied, generation.Previous}
	if p := generation.Pointer(name); slices.Contains(pointers, p) {
		g, err := h.store.Read(ctx, p)
		if err == nil && g == nil {
			err = fmt.Errorf("cannot find the %s generation: there is none yet", name)
		}
		return g, err
	}
	ids, err := h.store.IDs()
	if err != nil {
		return nil, err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return !strings.HasPrefix(id, name) })
	switch {
	case len(ids) == 1:
		g, err := h.store.Load(ids[0])
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
	if h.live == nil {
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
