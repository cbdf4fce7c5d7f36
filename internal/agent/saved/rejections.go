package saved

import (
	"context"
	"slices"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/node"
)

// Rejection is a generation that failed. It is not tried again until its content changes or a
// person asks.
type Rejection struct {
	Generation string `json:"generation"`
	// Received is the digest of the document that it came from.
	Received string    `json:"received"`
	Reason   string    `json:"reason"`
	At       time.Time `json:"at"`
	// Log holds the last lines of the unit that failed.
	Log []string `json:"log,omitempty"`
	// Past reports that another document has been wanted since. It is not tried again all the same.
	Past bool `json:"past,omitempty"`
	// ByHand reports that it has not failed, but that a person went back from it.
	ByHand bool `json:"byHand,omitempty"`
	// Origin and Resource are where it came from, Kubernetes is the version that it had.
	Origin     generation.Origin `json:"origin,omitzero"`
	Resource   config.Resource   `json:"resource,omitzero"`
	Kubernetes string            `json:"kubernetes,omitempty"`
	// Facts are those of the machine that the generation was rendered for.
	Facts node.Facts `json:"facts,omitzero"`
}

// Rejections are those that are kept, the oldest first.
type Rejections []Rejection

// maxRejections is how many rejections are kept.
const maxRejections = 10

// Of returns the rejection of a document.
func (list Rejections) Of(received string) (Rejection, bool) {
	return list.first(func(r Rejection) bool { return r.Received == received })
}

// OfGeneration returns the rejection of a generation.
func (list Rejections) OfGeneration(id string) (Rejection, bool) {
	return list.first(func(r Rejection) bool { return r.Generation == id })
}

func (list Rejections) first(is func(Rejection) bool) (Rejection, bool) {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i], true
	}
	return Rejection{}, false
}

func (list Rejections) without(received string) Rejections {
	return slices.DeleteFunc(slices.Clone(list), func(r Rejection) bool {
		return r.Received == received
	})
}

// KeepRejection adds a rejection to those that are kept.
func (s *Store) KeepRejection(ctx context.Context, r Rejection) error {
	list := append(s.Rejected.without(r.Received), r)
	s.Rejected = list[max(0, len(list)-maxRejections):]
	return s.Save(ctx, RejectedFile, s.Rejected)
}

// Outdated reports whether Want has something to write.
func (s *State) Outdated(received string) bool {
	return slices.ContainsFunc(s.Rejected, func(r Rejection) bool {
		return r.Past == (r.Received == received)
	})
}

// Want writes which document is wanted now: rejections of others are past.
func (s *Store) Want(ctx context.Context, received string) error {
	if !s.Outdated(received) {
		return nil
	}
	for i, r := range s.Rejected {
		s.Rejected[i].Past = r.Received != received
	}
	return s.Save(ctx, RejectedFile, s.Rejected)
}

// Forgive forgets that a document was rejected.
func (s *Store) Forgive(ctx context.Context, received string) error {
	if _, ok := s.Rejected.Of(received); !ok {
		return nil
	}
	s.Rejected = s.Rejected.without(received)
	return s.Save(ctx, RejectedFile, s.Rejected)
}
