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
	// Did receives the name of each change that was written, and of each effect in a cluster; tests
	// stop the provider there.
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
	// Rollouts has the state of a cluster's changes, by its key.
	Rollouts Table[flexnode.Rollout]
	// Secrets has client secrets by key of the node, Bundles the texts that URLs hand out, by key
	// of the credential.
	Secrets Table[Sealed]
	Bundles Table[Sealed]
	// Credentials are by cluster and id. Tokens has the credential of a bootstrap token, by cluster
	// and id of the token.
	Credentials Table[Credential]
	Tokens      Table[string]
	// PodCIDRs has the node of each subnet, by cluster and number.
	PodCIDRs   Table[string]
	Tombstones Table[flexnode.Tombstones]
	// Certificates has those of kubelets, by key of the node, also after it was deleted.
	Certificates Table[flexnode.Certificates]
	Operations   Table[flexnode.Operation]
	// Diagnoses has the requests to machines and their answers, by key of the node.
	Diagnoses Table[api.Diagnosis]
	// ArcLeft is by key and uid of a deleted node.
	ArcLeft Table[ArcLeft]
	// APIServers has the registration of an API server, by flexnode.Cluster.APIServer.
	APIServers Table[string]
	// Members has the live replicas by name, Owners the one that owns a cluster, by its key. Both
	// are under the lease of the replica (Membership).
	Members Table[Member]
	Owners  Table[Member]
	// Processes has all live processes by name, each under a lease of its own (Presence).
	Processes Table[Process]
	// Reaches has whether a replica reaches a cluster, by the keys of both, under the same lease.
	Reaches Table[bool]
	// Meta has rows about the whole store, by name.
	Meta Table[json.RawMessage]

	// schema is a condition of every commit (HoldSchema); nil is none.
	schema  atomic.Pointer[Condition]
	crowded atomic.Bool // set by Health
	feed    feed
	layers  *lru.Cache[string, *flexnode.Layer]
	tables  []decoder
}

// The prefixes of rows.
const root, indexed, other = "/flexnode/v2/", root + "i/", root + "s/"

// New returns a store on a backend.
func New(b Backend) *Store {
	s := &Store{Backend: b, Did: func(string) {}, feed: feed{by: map[string][]*listener{}}}
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

// table sets up a table below a prefix, and adds it to ReadAll.
func table[T any](s *Store, t *Table[T], place, name string) {
	*t = Table[T]{store: s, prefix: place + name + "/"}
	s.tables = append(s.tables, decoder{name, t.prefix, func(key string, kv KV) error {
		row, err := t.decode(key, kv)
		if h, ok := any(row.Value).(flexnode.History); ok && err == nil {
			_, err = h.All()
		}
		return err
	}})
}

// AddTombstone adds a tombstone of a node within a change.
func (s *Store) AddTombstone(v *View, nodeKey string, stone flexnode.Tombstone) error {
	return s.Tombstones.Put(v, nodeKey, s.Tombstones.Row(v, nodeKey).Value.With(stone))
}

// The types of package kv for a Store's database.
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
