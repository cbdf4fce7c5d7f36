package store

import (
	"context"
	"time"
)

// Seen knows when the agent of each node was last heard of, by any replica. It is kept apart from
// the nodes' state, so that it costs no revision per node.
type Seen struct{}

// NewSeen is that of a replica; the index tells it what other replicas have seen.
func NewSeen(s *Store, x *Index, replica string) *Seen { panic("not written yet") }

// Note takes down that the agent of a node was heard of.
func (s *Seen) Note(nodeKey string, now time.Time) { panic("not written yet") }

// Last is when the agent of a node was last heard of, to a minute; zero if never.
func (s *Seen) Last(nodeKey string) time.Time { panic("not written yet") }

// Flush writes what has changed, all at once: at the end of the program.
func (s *Seen) Flush(ctx context.Context) error { panic("not written yet") }

// Run writes what has changed, spread over five minutes, until ctx ends.
func (s *Seen) Run(ctx context.Context, say func(error)) { panic("not written yet") }
