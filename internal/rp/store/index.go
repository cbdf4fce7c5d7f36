package store

import (
	"context"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// Index is a replica's copy of the indexed tables, kept by following the store. Polls and lists are
// answered from it, so that they cost the store nothing; it is a little behind the store.
type Index struct{}

// NewIndex returns an empty index; Load fills it.
func NewIndex(s *Store) *Index { panic("not written yet") }

// Load reads all indexed rows.
func (x *Index) Load(ctx context.Context) error { panic("not written yet") }

// Follow keeps the index up to date until ctx ends. say is told of each break.
func (x *Index) Follow(ctx context.Context, say func(error)) { panic("not written yet") }

// Age is how long ago the store was last heard of.
func (x *Index) Age() time.Duration { panic("not written yet") }

// Revision is how far the index is.
func (x *Index) Revision() int64 { panic("not written yet") }

// Poll is what a conditional GET of a node needs.
type Poll struct {
	UID, ETag        string
	Identity, Former string
	State            string // provisioningState, "" is Succeeded
	// Joining tells that there is a credential to join with: the first authenticated poll may
	// consume it.
	Joining bool
}

// Poll tells of a node, by its key.
func (x *Index) Poll(nodeKey string) (Poll, bool) { panic("not written yet") }

// Node is a node, by its key.
func (x *Index) Node(key string) (Row[flexnode.Node], error) { panic("not written yet") }

// Status is what is said of a node, by its key.
func (x *Index) Status(key string) (Row[flexnode.Status], error) { panic("not written yet") }

// Cluster is a cluster, by its key.
func (x *Index) Cluster(key string) (Row[flexnode.Cluster], error) { panic("not written yet") }

// Subscription is the state of a subscription, by its id in lower case; "" if it is not known.
func (x *Index) Subscription(id string) string { panic("not written yet") }

// Nodes returns up to limit nodes after a key among those whose keys begin with a prefix, and
// whether there are more.
func (x *Index) Nodes(prefix, after string, limit int) ([]Row[flexnode.Node], bool, error) {
	panic("not written yet")
}

// Clusters is as Nodes for clusters.
func (x *Index) Clusters(prefix, after string, limit int) ([]Row[flexnode.Cluster], bool, error) {
	panic("not written yet")
}

// Stale returns keys of up to limit nodes of a cluster that were not rendered with these facts and
// did not fail.
func (x *Index) Stale(clusterKey, facts string, limit int) []string { panic("not written yet") }

// Counts are the nodes by their state and by that of their Ready condition ("" if it is not known).
func (x *Index) Counts() map[[2]string]int { panic("not written yet") }

// Subscribe has see called with the table ("nodes", "status", "clusters", "subscriptions") and the
// key of each change, after the index has it. see must be quick. cancel ends it.
func (x *Index) Subscribe(see func(table, key string)) (cancel func()) { panic("not written yet") }
