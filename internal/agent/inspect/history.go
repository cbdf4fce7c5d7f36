package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
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
func History(ctx context.Context, a *Env) ([]Past, error) {
	h, err := open(ctx, a)
	if err != nil {
		return nil, err
	}
	if h.Saved.Live == nil && h.Saved.Transition == nil {
		return nil, ErrNoNode
	}
	list, err := h.Saved.ReadHistory()
	if err != nil {
		return nil, err
	}
	kept, err := kept(ctx, h, list)
	if err != nil {
		return nil, err
	}
	past := append(pending(h), kept...) // before those that were rejected in the same second
	for _, r := range h.Saved.Rejected {
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
func pending(h *Node) []Past {
	received, applied := h.Records().BundleResource(), AppliedResource(h.Env)
	if t := h.Saved.Transition; t != nil && t.To != "" && t.To != t.From {
		p := Past{Generation: t.To, At: &t.Began, State: StateChanging,
			Reason: fmt.Sprintf("%s, phase %s", t.Kind, t.Phase)}
		if g, err := h.Saved.Generations.Load(t.To); err == nil {
			p.describe(&g)
		}
		return []Past{p}
	}
	if received.ConfigVersion == "" || received == applied {
		return nil
	}
	if digest, err := h.Records().BundleDigest(); err == nil {
		if _, rejected := h.Saved.Rejected.Of(digest); rejected {
			return nil
		}
	}
	p := Past{Origin: "url", Resource: received.ID, Version: received.ConfigVersion,
		State: StateReceived}
	if w := ReadWaiting(h.Env); w != nil {
		p.Reason = w.Reason + ": " + firstLine(w.Message)
	}
	return []Past{p}
}

// pastOf is a rejection as a line of the history.
func pastOf(r saved.Rejection) Past {
	return Past{
		Generation: r.Generation, At: &r.At, Origin: r.Origin.Kind, Agent: r.Origin.Agent,
		Resource: r.Resource.ID, Version: r.Resource.ConfigVersion, Kubernetes: r.Kubernetes,
		State: StateRejected, Reason: firstLine(r.Reason),
	}
}

// kept are the generations that are on this machine and were proved healthy.
func kept(ctx context.Context, h *Node, list saved.History) ([]Past, error) {
	previous, err := h.Saved.Generations.Target(ctx, generation.Previous)
	if err != nil {
		return nil, err
	}
	ids := list.IDs()
	for _, id := range []string{previous, h.Saved.AppliedID()} {
		if id != "" && !slices.Contains(ids, id) { // the history could not be read
			ids = append(ids, id)
		}
	}
	var past []Past
	for _, id := range slices.Backward(ids) {
		g, err := h.Saved.Generations.Load(id)
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
		case h.Saved.AppliedID():
			p.State, from = StateApplied, AppliedResource(h.Env)
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

// Find returns the kept generation that a name stands for: applied, previous, live, or the first
// letters of its id.
func Find(ctx context.Context, h *Node, name string) (*generation.Generation, error) {
	pointers := []generation.Pointer{generation.Live, generation.Applied, generation.Previous}
	if p := generation.Pointer(name); slices.Contains(pointers, p) {
		g, err := h.Saved.Generations.Read(ctx, p)
		if err == nil && g == nil {
			err = fmt.Errorf("cannot find the %s generation: there is none yet", name)
		}
		return g, err
	}
	ids, err := h.Saved.Generations.IDs()
	if err != nil {
		return nil, err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return !strings.HasPrefix(id, name) })
	switch {
	case len(ids) == 1:
		g, err := h.Saved.Generations.Load(ids[0])
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
func Compare(ctx context.Context, a *Env, from, to string) (Comparison, error) {
	h, err := open(ctx, a)
	if err != nil {
		return Comparison{}, err
	}
	if h.Saved.Live == nil {
		return Comparison{}, ErrNoNode
	}
	before, err := Find(ctx, h, cmp.Or(from, string(generation.Previous)))
	if err != nil {
		return Comparison{}, err
	}
	after, err := Find(ctx, h, cmp.Or(to, string(generation.Applied)))
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
		From: before.ID, To: after.ID, Config: settings, Changes: between(h, before, after),
	}, nil
}

// Admin is the administrator's kubeconfig that the node has already, "" for none.
func Admin(h *Node) config.Secret {
	return h.Saved.Secrets[h.Saved.AppliedID()].AdminKubeconfig
}

// between is what has to change for a generation to become another, on this machine as it is bound
// now, its Node object's labels included.
func between(h *Node, from, to *generation.Generation) []Entry {
	bind := func(g *generation.Generation) state.Desired {
		b := h.Saved.Bound(h.Saved.Bindings.Bindings, g)
		b.AdminKubeconfig = Admin(h) // it is kept of the applied one only, and goes on to the next
		return node.Bind(g.Node, b)
	}
	plan := state.Between(bind(from), bind(to))
	object := func(g *generation.Generation) state.Desired {
		all := node.NodeObject(g.Config, h.Saved.Bindings.Bindings)
		return slices.DeleteFunc(all, func(item state.Item) bool {
			_, label := item.Resource.(state.Label)
			return !label
		})
	}
	return Entries(append(plan, state.Between(object(from), object(to))...))
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
