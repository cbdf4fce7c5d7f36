// Package history describes a machine's past: the generations that were proved, those that were
// rejected, and the differences between two of them. It reads generations and writes nothing.
package history

import (
	"cmp"
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

// The max numbers of generations and rejections. Only the applied and previous ones keep artifacts.
const maxGenerations, maxRejections = 5, 10

// Proved records a generation that was proved healthy.
type Proved struct {
	Generation string    `json:"generation"`
	At         time.Time `json:"at,omitzero"` // the time of the proof
	// Resource is the one that the machine ran when it left this generation; zero until then.
	Resource config.Resource `json:"resource,omitzero"`
}

// List holds the applied generation, which is last, and those applied before.
type List []Proved

// Last returns the entry of a generation.
func (list List) Last(id string) (Proved, bool) {
	return first(list, func(p Proved) bool { return p.Generation == id })
}

// Next returns the history after a change from a generation, which ran a resource, to a proved one.
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

// Rejection is a failed generation. It is retried only if it changes or a person asks.
type Rejection struct {
	Generation string            `json:"generation"`
	Received   string            `json:"received"` // the digest of its document
	Reason     string            `json:"reason"`
	At         time.Time         `json:"at"`
	Log        []string          `json:"log,omitempty"`    // the last lines of the unit that failed
	Past       bool              `json:"past,omitempty"`   // another document is wanted since
	ByHand     bool              `json:"byHand,omitempty"` // not failed: a person rolled it back
	Origin     generation.Origin `json:"origin,omitzero"`
	Resource   config.Resource   `json:"resource,omitzero"`
	Kubernetes string            `json:"kubernetes,omitempty"`
	Facts      node.Facts        `json:"facts,omitzero"` // those for which it was rendered
}

// Rejections are the stored rejections, oldest first.
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

// With returns the rejections to store after another one.
func (list Rejections) With(r Rejection) Rejections {
	next := append(list.Without(r.Received), r)
	return next[max(0, len(next)-maxRejections):]
}

// Outdated reports whether Want would change something.
func (list Rejections) Outdated(received string) bool {
	return slices.ContainsFunc(list, func(r Rejection) bool {
		return r.Past == (r.Received == received)
	})
}

// Want records the wanted document: rejections of others are past.
func (list Rejections) Want(received string) {
	for i, r := range list {
		list[i].Past = r.Received != received
	}
}

// The states of a generation on the machine.
const (
	StateApplied  = "applied"  // proved healthy, and in force
	StatePrevious = "previous" // proved before that; its artifacts are kept
	StateKept     = "kept"     // proved earlier; its artifacts may have to be fetched again
	StateRejected = "rejected" // not retried until the content changes or a person asks
	StateChanging = "changing" // being applied
	StateReceived = "received" // not tried yet
)

// Past is one entry of a machine's history.
type Past struct {
	Generation string     `json:"generation,omitempty"` // "" if not rendered yet
	At         *time.Time `json:"at,omitempty"`
	Origin     string     `json:"origin,omitempty"`   // the source of the configuration
	Resource   string     `json:"resource,omitempty"` // its flexNodeConfig
	Version    string     `json:"configVersion,omitempty"`
	Agent      string     `json:"agent,omitempty"`      // the version of the program that rendered it
	Kubernetes string     `json:"kubernetes,omitempty"` // the version of kubelet
	State      string     `json:"state"`
	Reason     string     `json:"reason,omitempty"`
}

// Memory holds everything that a machine has recorded about itself.
type Memory struct {
	Generations       generation.Reader
	Proved            List
	Rejected          Rejections
	Applied, Previous string // generations; "" for none
	Transition        *transition.Transition
	// Received is the resource last delivered by a provider, Digest that of its document, and Runs the
	// resource that the machine runs; zero for none.
	Received, Runs config.Resource
	Digest         string
	Waits          string // why Received is not applied yet; "" if unknown
}

// Past lists the generations of a machine, the newest first, and a received but unapplied one.
func (m Memory) Past() []Past {
	past := m.kept()
	for _, r := range m.Rejected {
		past = append(past, Past{
			Generation: r.Generation, At: &r.At, Origin: r.Origin.Kind, Agent: r.Origin.Agent,
			Resource: r.Resource.ID, Version: r.Resource.ConfigVersion, Kubernetes: r.Kubernetes,
			State: StateRejected, Reason: transition.FirstLine(r.Reason),
		})
	}
	slices.SortStableFunc(past, func(a, b Past) int {
		return cmp.Or(b.At, &time.Time{}).Compare(*cmp.Or(a.At, &time.Time{}))
	})
	return append(m.pending(), past...)
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
		State: StateReceived, Reason: transition.FirstLine(m.Waits)}}
}

// kept returns the generations on this machine that were proved healthy.
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

// Find returns a kept generation by name: applied, previous, live, or the start of its id.
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
	From    string              `json:"from"`
	To      string              `json:"to"`
	Config  []config.Difference `json:"config"`  // the differing settings
	Changes []state.Line        `json:"changes"` // from one to the other
}

// Compare returns the differences between two generations, each bound on this machine now.
func Compare(
	before, after *generation.Generation, bind func(*generation.Generation) node.Bindings,
) Comparison {
	whole := func(g *generation.Generation) state.Desired { return node.Bind(g.Node, bind(g)) }
	plan := state.Between(whole(before), whole(after))
	labels := func(g *generation.Generation) state.Desired {
		return slices.DeleteFunc(node.NodeObject(g.Config, bind(g)), func(item state.Item) bool {
			_, label := item.Resource.(state.Label)
			return !label
		})
	}
	plan = append(plan, state.Between(labels(before), labels(after))...)
	return Comparison{
		From: before.ID, To: after.ID, Changes: state.Lines(plan),
		Config: append([]config.Difference{}, before.Config.Differences(after.Config)...), // not null
	}
}
