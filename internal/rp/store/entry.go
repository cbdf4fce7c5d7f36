package store

import (
	"cmp"
	"fmt"
	"strings"
	"unique"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// entry holds the rows of a node in a snapshot: itself and its status, packed, and the values that
// are read without unpacking. Values that many nodes share are kept once.
type entry struct {
	key, uid         string
	identity         string // for polls; each agent may have its own
	machineKey, boot string // the thumbprint of the machine's key, and its current boot
	node, status     string // packed
	nodeAt, statusAt int64  // revisions, 0 without such a row
	former           flexnode.Former
	facts            unique.Handle[string]          // not set without a node's row
	wanted           unique.Handle[flexnode.Wanted] // the same
	ready            unique.Handle[string]          // status of its Node's Ready condition
	versions         versions
}

// versions holds the configVersions of a node: in its row, and in its agent's report.
type versions struct{ revision, assigned, applied, failed int64 }

// size returns the bytes of an entry that count against a quota.
func (e *entry) size() int {
	return len(e.key) + len(e.uid) + len(e.identity) + len(e.machineKey) + len(e.boot) +
		len(e.node) + len(e.status)
}

// with returns an entry, or nil, after a change of its node or status; nil if neither is left.
func (e *entry) with(p parsed) *entry {
	next := entry{key: p.key, ready: unique.Make("")}
	if e != nil {
		next = *e
	}
	switch {
	case p.table == statusTable:
		said := *cmp.Or(p.status, &flexnode.Status{})
		next.status, next.statusAt = p.packed, p.revision
		next.ready = unique.Make(cmp.Or(said.Ready, &api.Condition{}).Status)
		next.versions.applied, next.versions.failed = said.Applied(), said.Failed()
	case p.revision == 0:
		next = entry{
			key: p.key, status: next.status, statusAt: next.statusAt, ready: next.ready,
			versions: next.versions,
		}
	default:
		n := p.node
		next.uid, next.identity, next.machineKey = n.UID, n.Identity, n.MachineKey
		next.boot = n.Boots.Current
		next.node, next.nodeAt = p.packed, p.revision
		next.versions.revision, next.versions.assigned = n.Revision, n.Assigned
		next.former, next.facts = n.Former, unique.Make(factsOf(n))
		next.wanted = unique.Make(flexnode.WantedOf(*n))
	}
	if next.nodeAt == 0 && next.statusAt == 0 {
		return nil
	}
	return &next
}

func unpackRow[T any](key, packed string, revision int64) (Row[T], error) {
	r := Row[T]{Key: key, Revision: revision}
	if revision == 0 {
		return r, nil
	}
	data, err := dictionary().Decode(nil, []byte(packed))
	if err == nil {
		err = decode(data, &r.Value)
	}
	if err != nil {
		return r, fmt.Errorf("cannot read the row of %s in the index: %w", key, err)
	}
	return r, nil
}

// tally counts nodes: by state and Ready condition; by subscription, all nodes, those with a
// credential to join with, and their bytes; and by cluster, the unsettled ones.
type tally struct {
	states, used map[[2]string]int
}

func newTally() tally { return tally{map[[2]string]int{}, map[[2]string]int{}} }

// The counts by subscription and, last, by cluster.
const allNodes, joiningNodes, nodeBytes, unsettledNodes = "nodes", "joining", "bytes", "unsettled"

func (t tally) count(e *entry, by int) {
	if e.nodeAt == 0 {
		return
	}
	wanted := e.wanted.Value()
	t.states[[2]string{wanted.State, e.ready.Value()}] += by
	subscription, _, _ := strings.Cut(e.key, "/")
	t.used[[2]string{subscription, allNodes}] += by
	t.used[[2]string{subscription, nodeBytes}] += by * e.size()
	if wanted.Joining {
		t.used[[2]string{subscription, joiningNodes}] += by
	}
	if v := e.versions; wanted.Unsettled(v.revision, v.assigned, v.applied, v.failed) {
		t.used[[2]string{flexnode.ClusterOf(e.key), unsettledNodes}] += by
	}
}

func sum(to, from map[[2]string]int) {
	for key, by := range from {
		if to[key] += by; to[key] == 0 {
			delete(to, key)
		}
	}
}
