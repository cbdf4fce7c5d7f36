// Package history is what a machine has been: the generations that were proved, those that were
// rejected, and what differs between two of them. It reads generations and writes nothing.
package history

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// How many generations and rejections are kept. Artifacts are kept of the applied and previous one.
const (
	maxGenerations = 5
	maxRejections  = 10
)

// Proved is a generation that was proved healthy, once.
type Proved struct {
	Generation string    `json:"generation"`
	At         time.Time `json:"at,omitzero"` // when
	// Resource is the one that the machine ran on when it left this generation; zero until then.
	Resource config.Resource `json:"resource,omitzero"`
}

// List is the applied generation, which is the last one, and those that were applied before.
type List []Proved

// Last returns when a generation was proved last.
func (list List) Last(id string) (Proved, bool) {
	return first(list, func(p Proved) bool { return p.Generation == id })
}

// Next is the history once a generation is proved, after one with a resource. Each is in it once.
func (list List) Next(from, to string, ran config.Resource, at time.Time) List {
	if len(list) > 0 && list[len(list)-1].Generation == to {
		return list
	}
	before, _ := list.Last(from)
	again, _ := list.Last(to)
	rest := slices.DeleteFunc(slices.Clone(list), func(p Proved) bool {
		return p.Generation == from || p.Generation == to
	})
	if from != "" && from != to {
		rest = append(rest, Proved{Generation: from, At: before.At, Resource: ran})
	}
	rest = append(rest, Proved{Generation: to, At: at, Resource: again.Resource})
	return rest[max(0, len(rest)-maxGenerations):]
}

// IDs returns the generations of the history.
func (list List) IDs() []string {
	ids := make([]string, len(list))
	for i, p := range list {
		ids[i] = p.Generation
	}
	return ids
}

// Rejection is a generation that failed. Only a change or a person has it tried again.
type Rejection struct {
	Generation string `json:"generation"`
	// Received is the digest of the document that it came from.
	Received string    `json:"received"`
	Reason   string    `json:"reason"`
	At       time.Time `json:"at"`
	// Log holds the last lines of the unit that failed.
	Log []string `json:"log,omitempty"`
	// Past reports that another document has been wanted since. It is not tried again all the same.
	Past   bool `json:"past,omitempty"`
	ByHand bool `json:"byHand,omitempty"` // it has not failed: a person went back from it
	// Origin and Resource are where it came from, Kubernetes is the version that it had.
	Origin     generation.Origin `json:"origin,omitzero"`
	Resource   config.Resource   `json:"resource,omitzero"`
	Kubernetes string            `json:"kubernetes,omitempty"`
	// Facts are those of the machine that the generation was rendered for.
	Facts node.Facts `json:"facts,omitzero"`
}

// Rejections are those that are kept, the oldest first.
type Rejections []Rejection

// Of returns the rejection of a document.
func (list Rejections) Of(received string) (Rejection, bool) {
	return first(list, func(r Rejection) bool { return r.Received == received })
}

// OfGeneration returns the rejection of a generation.
func (list Rejections) OfGeneration(id string) (Rejection, bool) {
	return first(list, func(r Rejection) bool { return r.Generation == id })
}

// Without returns the rejections of other documents.
func (list Rejections) Without(received string) Rejections {
	return slices.DeleteFunc(slices.Clone(list), func(r Rejection) bool {
		return r.Received == received
	})
}

func first[T any](list []T, is func(T) bool) (found T, ok bool) {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i], true
	}
	return found, false
}

// With returns the rejections that are kept once there is another one.
func (list Rejections) With(r Rejection) Rejections {
	next := append(list.Without(r.Received), r)
	return next[max(0, len(next)-maxRejections):]
}

// Outdated reports whether Want changes something.
func (list Rejections) Outdated(received string) bool {
	return slices.ContainsFunc(list, func(r Rejection) bool {
		return r.Past == (r.Received == received)
	})
}

// Want notes which document is wanted now: rejections of others are past.
func (list Rejections) Want(received string) {
	for i, r := range list {
		list[i].Past = r.Received != received
	}
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

// Memory holds all that a machine remembers of itself.
type Memory struct {
	Generations generation.Reader
	Proved      List
	Rejected    Rejections
	// Applied and Previous are generations; "" without one.
	Applied, Previous string
	Transition        *transition.Transition
	// Received is the resource that a provider has delivered last, with the digest of its document,
	// and Runs the one that the machine runs on; zero for none.
	Received, Runs config.Resource
	Digest         string
	Waits          string // why the former is not applied yet; "" when that is not known
}

// Past lists the generations of a machine, the newest first, and what it has received and is not.
func (m Memory) Past() []Past {
	past := append(m.pending(), m.kept()...) // before those that were rejected in the same second
	for _, r := range m.Rejected {
		past = append(past, Past{
			Generation: r.Generation, At: &r.At, Origin: r.Origin.Kind, Agent: r.Origin.Agent,
			Resource: r.Resource.ID, Version: r.Resource.ConfigVersion, Kubernetes: r.Kubernetes,
			State: StateRejected, Reason: firstLine(r.Reason),
		})
	}
	slices.SortStableFunc(past, func(a, b Past) int { return b.when().Compare(a.when()) })
	return past
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

// pending returns the pending entry: a change under way, or a configuration received and waiting.
func (m Memory) pending() []Past {
	if t := m.Transition; t != nil && t.To != "" && t.To != t.From {
		p := Past{Generation: t.To, At: &t.Began, State: StateChanging,
			Reason: fmt.Sprintf("%s, phase %s", t.Kind, t.Phase)}
		if g, err := m.Generations.Load(t.To); err == nil {
			p.describe(&g)
		}
		return []Past{p}
	}
	if _, rejected := m.Rejected.Of(m.Digest); m.Received.ConfigVersion == "" ||
		m.Received == m.Runs || rejected {
		return nil
	}
	return []Past{{Origin: "url", Resource: m.Received.ID, Version: m.Received.ConfigVersion,
		State: StateReceived, Reason: firstLine(m.Waits)}}
}

// kept are the generations that are on this machine and were proved healthy.
func (m Memory) kept() []Past {
	ids := m.Proved.IDs()
	for _, id := range []string{m.Previous, m.Applied} {
		if id != "" && !slices.Contains(ids, id) { // the history could not be read
			ids = append(ids, id)
		}
	}
	var past []Past
	for _, id := range slices.Backward(ids) {
		g, err := m.Generations.Load(id)
		if err != nil {
			continue // it is not kept
		}
		p := Past{Generation: id, State: StateKept}
		p.describe(&g)
		known, _ := m.Proved.Last(id)
		if !known.At.IsZero() {
			p.At = &known.At
		}
		from := known.Resource
		switch id {
		case m.Applied:
			p.State, from = StateApplied, m.Runs
		case m.Previous:
			p.State = StatePrevious
		}
		p.Resource, p.Version = from.ID, from.ConfigVersion
		past = append(past, p)
	}
	return past
}

func (p *Past) describe(g *generation.Generation) {
	p.Origin, p.Agent, p.Kubernetes = g.Origin.Kind, g.Origin.Agent, g.Config.Kubernetes.Version
}

// Find returns the kept generation of a name: applied, previous, live, or an id's first letters.
func Find(ctx context.Context, all generation.Reader, name string) (*generation.Generation, error) {
	pointers := []generation.Pointer{generation.Live, generation.Applied, generation.Previous}
	if p := generation.Pointer(name); slices.Contains(pointers, p) {
		g, err := all.Read(ctx, p)
		if err == nil && g == nil {
			err = fmt.Errorf("this machine has no %s generation yet", name)
		}
		return g, err
	}
	ids, err := all.IDs()
	if err != nil {
		return nil, err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return !strings.HasPrefix(id, name) })
	switch {
	case len(ids) == 1:
		g, err := all.Load(ids[0])
		return &g, err
	case len(ids) > 1:
		return nil, fmt.Errorf("cannot tell which generation %q is: %d begin so", name, len(ids))
	}
	return nil, fmt.Errorf("cannot find generation %q: `aks-flex-node history` lists those that are "+
		"kept", name)
}

// Comparison holds the differences between two generations.
type Comparison struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Config are the settings that differ, Changes what a change from one to the other would do.
	Config  []config.Difference `json:"config"`
	Changes []state.Line        `json:"changes"`
}

// Compare returns what differs between two generations, as each is bound on this machine now.
func Compare(
	before, after *generation.Generation, bind func(*generation.Generation) node.Bindings,
) (Comparison, error) {
	settings, err := before.Config.Differences(after.Config)
	if err != nil {
		return Comparison{}, err
	}
	if settings == nil {
		settings = []config.Difference{}
	}
	whole := func(g *generation.Generation) state.Desired { return node.Bind(g.Node, bind(g)) }
	plan := state.Between(whole(before), whole(after))
	labels := func(g *generation.Generation) state.Desired {
		all := node.NodeObject(g.Config, bind(g))
		return slices.DeleteFunc(all, func(item state.Item) bool {
			_, label := item.Resource.(state.Label)
			return !label
		})
	}
	plan = append(plan, state.Between(labels(before), labels(after))...)
	return Comparison{
		From: before.ID, To: after.ID, Config: settings, Changes: state.Lines(plan),
	}, nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
