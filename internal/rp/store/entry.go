package store

import (
	"fmt"
	"strings"
	"sync"
	"unique"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// entry is the rows of a node in a snapshot: itself and its status, packed, and what is asked for
// without unpacking them. There are as many as nodes in every replica, and the garbage collector
// sees each: so all text is one string, and what is the same in many nodes is kept once.
type entry struct {
	// text is key, own part of the identity, uid, machine key, boot, packed node, packed status.
	text             string
	ends             [6]uint32
	nodeAt, statusAt int64                 // revisions, 0 without such a row
	realm            unique.Handle[string] // the part of the identity that others have, too
	traits           unique.Handle[traits]
	said             unique.Handle[flexnode.Said]
	versions         versions
}

// traits are what many nodes have alike.
type traits struct {
	state, ready, facts string
	former              flexnode.Former
	joining             bool
	wanted              unique.Handle[flexnode.Wanted]
}

// versions are the configVersions of a node: those of its row, and those that its agent tells.
type versions struct{ revision, assigned, applied, observed, failed int64 }

func (e *entry) key() string    { return e.text[:e.ends[0]] }
func (e *entry) own() string    { return e.text[e.ends[0]:e.ends[1]] }
func (e *entry) uid() string    { return e.text[e.ends[1]:e.ends[2]] }
func (e *entry) node() string   { return e.text[e.ends[4]:e.ends[5]] }
func (e *entry) status() string { return e.text[e.ends[5]:] }

// machineKey is the thumbprint of the key of the node's machine, boot its current boot.
func (e *entry) machineKey() string { return e.text[e.ends[2]:e.ends[3]] }
func (e *entry) boot() string       { return e.text[e.ends[3]:e.ends[4]] }

// identity is the identity that polls; each agent may have one of its own.
func (e *entry) identity() string { return e.realm.Value() + e.own() }

// cutIdentity cuts an identity into the part that others have, too, and its own.
func cutIdentity(identity string) (realm, own string) {
	at := strings.LastIndexAny(identity, "/:") + 1
	return identity[:at], identity[at:]
}

func (e *entry) etag() string {
	return flexnode.ETag(e.uid(), e.versions.assigned, e.versions.revision)
}

var (
	noRealm  = unique.Make("")
	noSaid   = unique.Make(flexnode.Said{})
	noWanted = unique.Make(flexnode.Wanted{})
	noTraits = unique.Make(traits{wanted: noWanted})
)

// with is an entry, or nil, after a change of its node or status; nil if neither is there then.
func (e *entry) with(p parsed) *entry {
	next := entry{realm: noRealm, traits: noTraits, said: noSaid}
	own, uid, machine, boot, node, status := "", "", "", "", "", ""
	if e != nil {
		next = *e
		own, uid, machine, boot = e.own(), e.uid(), e.machineKey(), e.boot()
		node, status = e.node(), e.status()
	}
	t := next.traits.Value()
	switch {
	case p.table == statusTable:
		next.statusAt, status, t.ready = p.revision, string(p.packed), p.ready
		next.say(p)
	case p.deleted:
		own, uid, machine, boot, node, next.realm = "", "", "", "", "", noRealm
		next.nodeAt, t = 0, traits{ready: t.ready, wanted: noWanted}
	default:
		h := p.head
		var realm string
		realm, own = cutIdentity(h.Identity)
		uid, machine, boot, node = h.UID, h.MachineKey, h.Boots.Current, string(p.packed)
		next.nodeAt, next.realm = p.revision, unique.Make(realm)
		next.versions.revision, next.versions.assigned = h.Revision, h.Assigned
		t = traits{
			h.State, t.ready, h.facts(), h.Former, h.Credential != "", unique.Make(h.wanted()),
		}
	}
	if p.deleted && p.table == statusTable {
		next.statusAt = 0
	}
	if next.nodeAt == 0 && next.statusAt == 0 {
		return nil
	}
	next.traits = unique.Make(t)
	next.join(p.key, own, uid, machine, boot, node, status)
	return &next
}

// say takes over what a status says.
func (e *entry) say(p parsed) {
	v := &e.versions
	e.said, v.applied, v.observed, v.failed = noSaid, 0, 0, 0
	if !p.deleted {
		e.said = unique.Make(flexnode.SaidOf(p.status))
		v.applied, v.observed, v.failed = p.status.Versions()
	}
}

func (e *entry) join(key, own, uid, machine, boot, node, status string) {
	e.text = key + own + uid + machine + boot + node + status
	end := 0
	for i, part := range []string{key, own, uid, machine, boot, node} {
		end += len(part)
		e.ends[i] = uint32(end)
	}
}

// unpacked has buffers for rows on their way from packed to decoded.
var unpacked = sync.Pool{New: func() any { return new([]byte) }}

// unpackRow is a row of an index.
func unpackRow[T any](x *Index, key, packed string, revision int64) (Row[T], error) {
	r := Row[T]{Key: key, Revision: revision}
	if revision == 0 {
		return r, nil
	}
	buffer := unpacked.Get().(*[]byte)
	defer unpacked.Put(buffer)
	data, err := x.packer.unpack(*buffer, packed)
	if err == nil {
		*buffer = data[:cap(data)]
		err = decode(data, &r.Value) // nothing in the value is of the buffer
	}
	if err != nil {
		return r, fmt.Errorf("cannot read the row of %s in the index: %w", key, err)
	}
	return r, nil
}

// tally counts nodes: by state and Ready condition, by cluster and the facts that they were
// rendered with, and by subscription: all of them, those that have a credential to join with, and
// the bytes that they take.
type tally struct {
	states, facts, used map[[2]string]int
}

func newTally() tally {
	return tally{map[[2]string]int{}, map[[2]string]int{}, map[[2]string]int{}}
}

// What is counted by subscription.
const (
	allNodes     = "nodes"
	joiningNodes = "joining"
	nodeBytes    = "bytes"
)

// count adds a node, or takes it away.
func (t tally) count(e *entry, by int) {
	if e.nodeAt == 0 {
		return
	}
	is := e.traits.Value()
	t.states[[2]string{is.state, is.ready}] += by
	t.facts[[2]string{flexnode.ClusterOf(e.key()), is.facts}] += by
	subscription, _, _ := strings.Cut(e.key(), "/")
	t.used[[2]string{subscription, allNodes}] += by
	t.used[[2]string{subscription, nodeBytes}] += by * len(e.text)
	if is.joining {
		t.used[[2]string{subscription, joiningNodes}] += by
	}
}

func (t tally) add(o tally) {
	sum(t.states, o.states)
	sum(t.facts, o.facts)
	sum(t.used, o.used)
}

func sum(to, from map[[2]string]int) {
	for key, by := range from {
		if to[key] += by; to[key] == 0 {
			delete(to, key)
		}
	}
}
