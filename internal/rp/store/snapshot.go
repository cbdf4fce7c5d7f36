package store

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/btree"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// snapshot is an immutable index at a revision, with one item for both rows of a node.
type snapshot struct {
	revision      int64
	nodes         *btree.BTreeG[item[*entry]]
	clusters      *btree.BTreeG[item[clusterRow]]
	subscriptions *btree.BTreeG[item[string]] // their states
}

type item[T any] struct {
	key   string
	value T
}

// clusterRow is a cluster; there are few, so they are not packed.
type clusterRow struct {
	row Row[flexnode.Cluster]
	err error
}

func newTree[T any](degree int) *btree.BTreeG[item[T]] {
	return btree.NewG(degree, func(a, b item[T]) bool { return a.key < b.key })
}

func newSnapshot() *snapshot {
	return &snapshot{
		nodes: newTree[*entry](32), clusters: newTree[clusterRow](8), subscriptions: newTree[string](8),
	}
}

// node returns the entry of a node; nil for none.
func (s *snapshot) node(key string) *entry {
	found, _ := s.nodes.Get(item[*entry]{key: key})
	return found.value
}

// The indexed tables, as Subscribe names them.
const (
	clustersTable      = "clusters"
	nodesTable         = "nodes"
	seenTable          = "seen"
	statusTable        = "status"
	subscriptionsTable = "subscriptions"
)

// draft is a snapshot that is being made.
type draft struct {
	index   *Index
	next    *snapshot
	whole   bool // it begins empty
	change  tally
	changed []changed
}

type changed struct{ table, key string }

// parsed is a row that is ready for a snapshot; revision 0 is a deleted one.
type parsed struct {
	table, key string
	revision   int64
	raw        []byte
	// For a node or status; empty if it cannot be read.
	node   *flexnode.Node
	status *flexnode.Status
	packed string
}

// factsOf returns the facts that the node was rendered with, or failed to render; see Index.Stale.
func factsOf(n *flexnode.Node) string {
	if n.Revision == 0 && n.Tried != "" {
		return triedWith(n.Facts, n.Tried)
	}
	return n.Facts
}

// triedWith replaces the facts of a node that failed to render with them.
func triedWith(facts, version string) string { return facts + " " + version }

// parse decodes and packs a row. Rows that cannot be read are kept; their readers get the error.
func parse(e Event) parsed {
	table, key, _ := strings.Cut(strings.TrimPrefix(e.Key, indexed), "/") // "" if it is not indexed
	if e.Deleted {
		return parsed{table: table, key: key}
	}
	p := parsed{table: table, key: key, revision: e.Revision, raw: e.Value}
	switch table {
	case nodesTable:
		if p.node = new(flexnode.Node); decode(e.Value, p.node) != nil {
			p.node = new(flexnode.Node)
		}
	case statusTable:
		if p.status = new(flexnode.Status); decode(e.Value, p.status) != nil {
			*p.status = flexnode.Status{}
			p.status.Report.AppliedConfigVersion = "-1" // see Index.Applied
		}
	default:
		return p
	}
	p.packed = string(dictionary().Encode(nil, e.Value))
	return p
}

// decode reads a row that this program has written. encoding/json takes twice as long; a start
// decodes all rows, and an answer those of its node.
func decode(row []byte, into any) error {
	return jsonv2.Unmarshal(row, into, jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
}

// apply makes changes, in order. It parses many on all cores.
func (d *draft) apply(events []Event) {
	all := make([]parsed, len(events))
	share := max(64, (len(events)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var working sync.WaitGroup
	for from := 0; from < len(events); from += share {
		working.Go(func() {
			for i := from; i < min(from+share, len(events)); i++ {
				all[i] = parse(events[i])
			}
		})
	}
	working.Wait()
	for _, p := range all {
		d.put(p)
	}
}

func (d *draft) put(p parsed) {
	switch p.table {
	case nodesTable, statusTable:
		d.putNode(p)
	case clustersTable:
		d.putCluster(p)
	case subscriptionsTable:
		var s flexnode.Subscription
		if json.Unmarshal(p.raw, &s) != nil {
			s.State = ""
		}
		replace(d.next.subscriptions, p, s.State)
	case seenTable:
		if d.index.seen != nil {
			d.index.seen(p.key, p.raw)
		}
		return
	default: // not indexed, or of a newer program
		return
	}
	d.changed = append(d.changed, changed{p.table, p.key})
}

func (d *draft) putNode(p parsed) {
	before := d.next.node(p.key)
	if before != nil {
		d.change.count(before, -1)
	}
	after := before.with(p)
	if after == nil {
		d.next.nodes.Delete(item[*entry]{key: p.key})
		return
	}
	d.change.count(after, 1)
	d.next.nodes.ReplaceOrInsert(item[*entry]{after.key, after})
}

func (d *draft) putCluster(p parsed) {
	c := clusterRow{row: Row[flexnode.Cluster]{Key: p.key, Revision: p.revision}}
	if err := json.Unmarshal(p.raw, &c.row.Value); err != nil {
		c.err = fmt.Errorf("cannot read the stored row of the cluster %s: %w", p.key, err)
	}
	replace(d.next.clusters, p, c)
}

// replace sets the value for the key of a row in a tree, or removes it if the row is deleted.
func replace[T any](tree *btree.BTreeG[item[T]], p parsed, value T) {
	if p.revision == 0 {
		tree.Delete(item[T]{key: p.key})
	} else {
		tree.ReplaceOrInsert(item[T]{p.key, value})
	}
}

// noteKeys marks the rows of a tree as changed, in each of its tables.
func noteKeys[T any](d *draft, tree *btree.BTreeG[item[T]], tables ...string) {
	tree.Ascend(func(i item[T]) bool {
		for _, table := range tables {
			d.changed = append(d.changed, changed{table, i.key})
		}
		return true
	})
}
