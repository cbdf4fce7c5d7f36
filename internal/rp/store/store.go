// Package store is the provider's storage: tables of JSON rows in a Backend, and one way to change
// them, Store.Update. Keys are in lower case, because ARM ignores case; the casing of callers is
// kept in the values.
package store

import (
	"encoding/json"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store/kv"
)

// Store is the provider's storage.
type Store struct {
	Backend
	// Did receives each change that was written, by name; tests stop the provider there.
	Did func(what string)

	// Rows of these are also in every replica's Index.
	Nodes         Table[flexnode.Node]
	Status        Table[flexnode.Status]
	Clusters      Table[flexnode.Cluster]
	Subscriptions Table[flexnode.Subscription]

	// History has the revisions of a node, Layers the parts that many of them share, by
	// flexnode.ContentID.
	History Table[flexnode.History]
	Layers  Table[json.RawMessage]
	// Rollouts tell how far the changes of a cluster are, by its key.
	Rollouts Table[flexnode.Rollout]
	// Secrets are client secrets by key of the node, Bundles the texts that URLs hand out, by key
	// of the credential.
	Secrets Table[Sealed]
	Bundles Table[Sealed]
	// Credentials are by cluster and id; Tokens tell which one a bootstrap token belongs to, by
	// cluster and id of the token.
	Credentials Table[Credential]
	Tokens      Table[string]
	// PodCIDRs tell which node has a subnet, by cluster and number.
	PodCIDRs   Table[string]
	Tombstones Table[flexnode.Tombstones]
	// Certificates are those of kubelets, by key of the node, also after it was deleted.
	Certificates Table[flexnode.Certificates]
	Operations   Table[flexnode.Operation]
	// Diagnoses has the requests to machines and their answers, by key of the node.
	Diagnoses Table[api.Diagnosis]
	// ArcLeft are by key and uid of a node that was deleted.
	ArcLeft Table[ArcLeft]
	// APIServers tell which registration an API server belongs to, by flexnode.Cluster.APIServer.
	APIServers Table[string]
	// Members are the live replicas by name, Owners tell which of them has a cluster, by its key.
	// They are under the lease of the replica (Membership).
	Members Table[Member]
	Owners  Table[Member]
	// Processes are all live processes by name, each under a lease of its own (Presence).
	Processes Table[Process]
	// Reaches holds whether a replica reaches a cluster, by the keys of both, under the same lease.
	Reaches Table[bool]
	// Meta has what concerns all of the store, by name.
	Meta Table[json.RawMessage]

	// schema is a condition of every commit (HoldSchema); nil is none.
	schema  atomic.Pointer[Condition]
	crowded atomic.Bool // what Health has found last
	feed    feed
	layers  *lru.Cache[string, *flexnode.Layer]
	tables  []decoder
}

// Where the rows are.
const (
	root    = "/flexnode/v2/"
	indexed = root + "i/"
	other   = root + "s/"
)

// New puts the tables on a backend.
func New(b Backend) *Store {
	s := &Store{Backend: b}
	s.layers, _ = lru.New[string, *flexnode.Layer](keptLayers) // an error only of a size below 1
	table(s, &s.Nodes, indexed, "nodes")
	table(s, &s.Status, indexed, "status")
	table(s, &s.Clusters, indexed, "clusters")
	table(s, &s.Subscriptions, indexed, "subscriptions")
	table(s, &s.History, other, "history")
	s.History.packed = true
	table(s, &s.Layers, other, "layers")
	s.Layers.packed = true
	table(s, &s.Rollouts, other, "rollouts")
	table(s, &s.Secrets, other, "secrets")
	table(s, &s.Bundles, other, "bundles")
	table(s, &s.Credentials, other, "credentials")
	table(s, &s.Tokens, other, "tokens")
	table(s, &s.PodCIDRs, other, "podcidrs")
	table(s, &s.Tombstones, other, "tombstones")
	table(s, &s.Certificates, other, "certificates")
	table(s, &s.Operations, other, "operations")
	table(s, &s.Diagnoses, other, "diagnoses")
	table(s, &s.ArcLeft, other, "arcleft")
	table(s, &s.APIServers, other, "apiservers")
	table(s, &s.Members, other, "members")
	table(s, &s.Owners, other, "owners")
	table(s, &s.Processes, other, "processes")
	table(s, &s.Reaches, other, "reaches")
	table(s, &s.Meta, other, "meta")
	return s
}

// table puts a table below a place, and has ReadAll read it.
func table[T any](s *Store, t *Table[T], place, name string) {
	*t = Table[T]{store: s, prefix: place + name + "/"}
	s.tables = append(s.tables, decoder{name, t.prefix, func(key string, kv KV) error {
		_, err := t.decode(key, kv)
		return err
	}})
}

// AddTombstone adds to the tombstones of a node within a change.
func (s *Store) AddTombstone(v *View, nodeKey string, stone flexnode.Tombstone) error {
	next, err := s.Tombstones.Row(v, nodeKey).Value.With(stone)
	if err != nil {
		return err
	}
	return s.Tombstones.Put(v, nodeKey, next)
}

// The database that a Store is in, in the words of package kv.
type (
	Backend   = kv.Backend
	KV        = kv.KV
	Condition = kv.Condition
	Write     = kv.Write
	Page      = kv.Page
	Event     = kv.Event
	Batch     = kv.Batch
	Lease     = kv.Lease
	Health    = kv.Health
)

// The errors of a Backend.
var (
	ErrConflict  = kv.ErrConflict
	ErrCompacted = kv.ErrCompacted
	ErrTooLarge  = kv.ErrTooLarge
	ErrFull      = kv.ErrFull
)

// MaxWrites limits the writes, and the conditions, of a commit.
const MaxWrites = kv.MaxWrites
