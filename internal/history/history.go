// Package history is what a machine has been: the generations that were proved, those that were
// rejected, and what differs between two of them. It reads generations and writes nothing.
package history

import (
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/node"
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
