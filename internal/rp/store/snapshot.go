package store

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/btree"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// snapshot is an index at a revision; it does not change. There is one item for the rows of a node.
type snapshot struct {
	revision      int64
	nodes         *btree.BTreeG[item[*entry]]
	clusters      *btree.BTreeG[item[clusterRow]]
	subscriptions *btree.BTreeG[item[stateRow]]
}

// item is something by its key.
type item[T any] struct {
	key   string
	value T
}

// clusterRow is a cluster; there are few, so they are kept as they are.
type clusterRow struct {
	row Row[flexnode.Cluster]
	err error
}

type stateRow struct {
	state    string
	revision int64
}

func newTree[T any](degree int) *btree.BTreeG[item[T]] {
	return btree.NewG(degree, func(a, b item[T]) bool { return a.key < b.key })
}

func newSnapshot() *snapshot {
	return &snapshot{
		nodes: newTree[*entry](32), clusters: newTree[clusterRow](8),
		subscriptions: newTree[stateRow](8),
	}
}

func (s *snapshot) node(key string) (*entry, bool) {
	found, ok := s.nodes.Get(item[*entry]{key: key})
	return found.value, ok
}

// The indexed tables, as Subscribe names them, in the order of their keys.
const (
	clustersTable      = "clusters"
	nodesTable         = "nodes"
	seenTable          = "seen"
	statusTable        = "status"
	subscriptionsTable = "subscriptions"
)

var tables = []string{clustersTable, nodesTable, seenTable, statusTable, subscriptionsTable}

// draft is a snapshot in the making.
type draft struct {
	index   *Index
	next    *snapshot
	change  tally
	changed []changed
	anew    bool // merge takes over nothing
}

// changed is a row that has changed.
type changed struct{ table, key string }

func (x *Index) draft() *draft {
	now := x.snapshot.Load()
	return &draft{index: x, change: newTally(), next: &snapshot{
		nodes: now.nodes.Clone(), clusters: now.clusters.Clone(),
		subscriptions: now.subscriptions.Clone(),
	}}
}

// parsed is a row that is ready to be put into a snapshot.
type parsed struct {
	table, key string
	revision   int64
	deleted    bool
	raw        []byte
	// Of a node or status.
	head   head
	status flexnode.Status
	ready  string
	packed []byte
}

// head is what a poll needs of a node.
type head struct {
	UID        string          `json:"uid"`
	Revision   int64           `json:"revision"`
	Assigned   int64           `json:"assigned"`
	Facts      string          `json:"facts"`
	Tried      string          `json:"tried"`
	State      string          `json:"state"`
	Credential string          `json:"credential"`
	Identity   string          `json:"identity"`
	Former     flexnode.Former `json:"former"`
	MachineKey string          `json:"machineKey"`
	Boots      struct {
		Current string `json:"current"`
	} `json:"boots"`
	// What follows is what an outline needs beside that.
	Chosen  flexnode.Chosen `json:"chosen"`
	Desired struct {
		ContinuousMonitoring bool `json:"continuousMonitoring"`
	} `json:"desired"`
	Failed        int64                   `json:"failed"`
	Insisted      int64                   `json:"insisted"`
	Attempt       *flexnode.Attempt       `json:"attempt"`
	FailedChanges []string                `json:"failedChanges"`
	Unreleased    int64                   `json:"unreleased"`
	Reason        string                  `json:"reason"`
	Ended         *flexnode.JoinEnd       `json:"ended"`
	Second        *flexnode.SecondMachine `json:"second"`
}

// wanted is what is wanted of the node.
func (h head) wanted() flexnode.Wanted {
	n := flexnode.Node{
		State: h.State, Chosen: h.Chosen, Credential: h.Credential, Former: h.Former,
		Reason: h.Reason, Ended: h.Ended, Revision: h.Revision, Failed: h.Failed,
		Insisted: h.Insisted, Attempt: h.Attempt, FailedChanges: h.FailedChanges,
		Unreleased: h.Unreleased, Second: h.Second,
	}
	n.Desired.ContinuousMonitoring = h.Desired.ContinuousMonitoring
	return flexnode.WantedOf(n)
}

// facts are what the node was rendered with, or could not be; see Index.Stale.
func (h head) facts() string {
	if h.Revision == 0 && h.Tried != "" {
		return triedWith(h.Facts, h.Tried)
	}
	return h.Facts
}

// triedWith is in place of facts for a node that they could not be rendered with.
func triedWith(facts, version string) string { return facts + " " + version }

// parse decodes and packs a row. Rows that cannot be read are kept: their readers are told.
func (x *Index) parse(e Event) parsed {
	table, key, _ := strings.Cut(strings.TrimPrefix(e.Key, indexed), "/")
	p := parsed{table: table, key: key, revision: e.Revision, deleted: e.Deleted, raw: e.Value}
	if e.Deleted {
		return p
	}
	switch table {
	case nodesTable:
		if decode(e.Value, &p.head) != nil {
			p.head = head{}
		}
		p.packed = x.packer.pack(e.Value)
	case statusTable:
		if decode(e.Value, &p.status) != nil {
			p.status = flexnode.Status{}
		}
		if p.status.Ready != nil {
			p.ready = p.status.Ready.Status
		}
		p.packed = x.packer.pack(e.Value)
	}
	return p
}

// decode reads a row as it was written here: encoding/json takes twice as long, a start decodes
// all rows that there are, and an answer those of its node.
func decode(row []byte, into any) error {
	return jsonv2.Unmarshal(row, into, jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
}

// apply makes changes in their order.
func (d *draft) apply(events []Event) {
	for _, p := range d.index.parseAll(events) {
		d.put(p)
	}
}

// parseAll parses on all cores what is worth it.
func (x *Index) parseAll(events []Event) []parsed {
	all := make([]parsed, len(events))
	share := max(64, (len(events)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var working sync.WaitGroup
	for from := share; from < len(events); from += share {
		to := min(from+share, len(events))
		working.Go(func() { x.parseSome(events[from:to], all[from:to]) })
	}
	x.parseSome(events[:min(share, len(events))], all)
	working.Wait()
	return all
}

func (x *Index) parseSome(events []Event, into []parsed) {
	for i, e := range events {
		into[i] = x.parse(e)
	}
}

// put makes one change.
func (d *draft) put(p parsed) {
	switch p.table {
	case nodesTable, statusTable:
		d.putNode(p)
	case clustersTable:
		d.putCluster(p)
	case subscriptionsTable:
		d.putSubscription(p)
	case seenTable:
		if d.index.seen != nil {
			d.index.seen(p.key, p.raw)
		}
		return
	default: // of a newer program
		return
	}
	d.changed = append(d.changed, changed{p.table, p.key})
}

// putNode makes a change of a node or its status.
func (d *draft) putNode(p parsed) {
	before, there := d.next.node(p.key)
	if there {
		d.change.count(before, -1)
	}
	after := before.with(p)
	if after == nil {
		d.next.nodes.Delete(item[*entry]{key: p.key})
		return
	}
	d.change.count(after, 1)
	d.next.nodes.ReplaceOrInsert(item[*entry]{after.key(), after})
}

func (d *draft) putCluster(p parsed) {
	if p.deleted {
		d.next.clusters.Delete(item[clusterRow]{key: p.key})
		return
	}
	c := clusterRow{row: Row[flexnode.Cluster]{Key: p.key, Revision: p.revision}}
	if err := json.Unmarshal(p.raw, &c.row.Value); err != nil {
		c.err = fmt.Errorf("cannot read the stored row of the cluster %s: %w", p.key, err)
	}
	d.next.clusters.ReplaceOrInsert(item[clusterRow]{p.key, c})
}

func (d *draft) putSubscription(p parsed) {
	if p.deleted {
		d.next.subscriptions.Delete(item[stateRow]{key: p.key})
		return
	}
	var s flexnode.Subscription
	if json.Unmarshal(p.raw, &s) != nil {
		s.State = ""
	}
	d.next.subscriptions.ReplaceOrInsert(item[stateRow]{p.key, stateRow{s.State, p.revision}})
}

// merge puts a page of rows, all that there are after a key up to another ("": to the end), in
// place of what the draft has there. What is the same remains as it is.
func (d *draft) merge(page []KV, after, last string) {
	var events []Event
	for _, kv := range page {
		if d.anew || d.revision(kv.Key) != kv.Revision {
			events = append(events, Event{KV: kv})
		}
	}
	for _, key := range d.keys(after, last) {
		_, there := slices.BinarySearchFunc(page, key, func(kv KV, key string) int {
			return strings.Compare(kv.Key, key)
		})
		if !there {
			events = append(events, Event{KV: KV{Key: key}, Deleted: true})
		}
	}
	d.apply(events)
}

// revision is that of a row of the draft, 0 if it does not have it.
func (d *draft) revision(full string) int64 {
	table, key, _ := strings.Cut(strings.TrimPrefix(full, indexed), "/")
	switch table {
	case nodesTable:
		if e, ok := d.next.node(key); ok {
			return e.nodeAt
		}
	case statusTable:
		if e, ok := d.next.node(key); ok {
			return e.statusAt
		}
	case clustersTable:
		c, _ := d.next.clusters.Get(item[clusterRow]{key: key})
		return c.value.row.Revision
	case subscriptionsTable:
		s, _ := d.next.subscriptions.Get(item[stateRow]{key: key})
		return s.value.revision
	}
	return 0
}

// keys are those that the draft has after a key up to another ("": to the end).
func (d *draft) keys(after, last string) []string {
	var keys []string
	for _, table := range tables {
		prefix := indexed + table + "/"
		if last != "" && prefix > last {
			break
		}
		from := ""
		if strings.HasPrefix(after, prefix) {
			from = after[len(prefix):]
		} else if after > prefix {
			continue
		}
		to, ends := strings.CutPrefix(last, prefix)
		d.walk(table, from, func(key string, has bool) bool {
			if ends && key > to {
				return false
			}
			if full := prefix + key; has && full > after {
				keys = append(keys, full)
			}
			return true
		})
	}
	return keys
}

// walk calls see with the keys of a table from one on, until it returns false: with those of the
// nodes, and whether they have a row in the table, since a walk must end where it is to end however
// few have one.
func (d *draft) walk(table, from string, see func(key string, has bool) bool) {
	nodes := func(has func(*entry) bool) {
		d.next.nodes.AscendGreaterOrEqual(item[*entry]{key: from}, func(i item[*entry]) bool {
			return see(i.key, has(i.value))
		})
	}
	switch table {
	case nodesTable:
		nodes(func(e *entry) bool { return e.nodeAt != 0 })
	case statusTable:
		nodes(func(e *entry) bool { return e.statusAt != 0 })
	case clustersTable:
		d.next.clusters.AscendGreaterOrEqual(item[clusterRow]{key: from},
			func(i item[clusterRow]) bool { return see(i.key, true) })
	case subscriptionsTable:
		d.next.subscriptions.AscendGreaterOrEqual(item[stateRow]{key: from},
			func(i item[stateRow]) bool { return see(i.key, true) })
	}
}
