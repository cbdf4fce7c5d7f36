package store

import "context"

// Membership is a replica among the others: each cluster is owned by one of them.
type Membership struct {
	// Say is told of what goes wrong with the store; it is tried again. It may be nil.
	Say func(error)
}

// Join makes a replica a member. Run then claims clusters.
func Join(ctx context.Context, s *Store, replica string) (*Membership, error) {
	panic("not written yet")
}

// Run claims the clusters of which this replica is the first choice, and releases others, until ctx
// ends; then it releases all and leaves.
func (m *Membership) Run(ctx context.Context) { panic("not written yet") }

// Members are the names of the live replicas.
func (m *Membership) Members() []string { panic("not written yet") }

// Owns tells whether this replica owns a cluster.
func (m *Membership) Owns(cluster string) (*Ownership, bool) { panic("not written yet") }

// Owned are the keys of the clusters that this replica owns.
func (m *Membership) Owned() []string { panic("not written yet") }

// Changed is told when the members or what this replica owns have changed.
func (m *Membership) Changed() <-chan struct{} { panic("not written yet") }

// Ownership is a cluster being owned by this replica, from its claim to its end.
type Ownership struct {
	Cluster string // key
}

// Fence is the condition that a write needs to be made by the owner (View.Fence).
func (o *Ownership) Fence() Condition { panic("not written yet") }

// Valid tells, by this replica's clock, that no other can own the cluster now: for effects outside
// of the store.
func (o *Ownership) Valid() bool { panic("not written yet") }

// Lost is closed when the cluster is not owned any more.
func (o *Ownership) Lost() <-chan struct{} { panic("not written yet") }
