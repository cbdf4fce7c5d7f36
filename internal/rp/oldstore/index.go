package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/google/btree"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Index is a replica's copy of the indexed tables, kept by a watch. Polls and lists are answered from it, so they cost the store
// nothing; it is a little behind the store.
type Index struct {
	client *clientv3.Client
	packer packer
	mu     sync.RWMutex
	tree   *btree.BTreeG[entry]
	// heard is when the store was last heard of, in Unix nanoseconds.
	heard    atomic.Int64
	revision atomic.Int64
}

// entry is a row, packed, with what is asked for without unpacking it. There are as many as rows in every replica, and the garbage collector
// looks at each: so key and row are one string, and what is the same in many rows is kept once.
type entry struct {
	blob     string // key and packed row
	keyLen   int
	revision int64
	version  int64                 // configVersion of a node
	agent    unique.Handle[string] // of a node: Node.Agent
	state    unique.Handle[string] // of a node or subscription; of a status: that of the Ready condition
	facts    unique.Handle[string] // of a node: Resolved.Facts
}

func (e entry) key() string { return e.blob[:e.keyLen] }

// at is an entry that is only compared.
func at(key string) entry { return entry{blob: key, keyLen: len(key)} }

// NewIndex returns an empty index; Load fills it.
func (s *Store) NewIndex() *Index {
	return &Index{client: s.client, packer: newPacker(), tree: newTree()}
}

func newTree() *btree.BTreeG[entry] {
	return btree.NewG(64, func(a, b entry) bool { return a.key() < b.key() })
}

// Load reads all indexed rows.
func (x *Index) Load(ctx context.Context) error {
	tree := newTree()
	from, end, revision := indexed, clientv3.GetPrefixRangeEnd(indexed), int64(0)
	for {
		got, err := x.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithRev(revision))
		if err != nil {
			return fmt.Errorf("cannot load the index: %w", err)
		}
		if revision == 0 {
			revision = got.Header.Revision
		}
		for _, kv := range got.Kvs {
			tree.ReplaceOrInsert(x.newEntry(string(kv.Key), kv.Value, kv.ModRevision))
		}
		if !got.More {
			break
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
	x.mu.Lock()
	x.tree = tree
	x.mu.Unlock()
	x.revision.Store(revision)
	x.heard.Store(time.Now().UnixNano())
	return nil
}

func (x *Index) newEntry(key string, data []byte, revision int64) entry {
	e := entry{blob: key + string(x.packer.pack(data)), keyLen: len(key), revision: revision}
	none := unique.Make("")
	e.agent, e.state, e.facts = none, none, none
	switch {
	case strings.HasPrefix(key, nodePrefix):
		if r, err := decode[Node](key, data, revision); err == nil {
			e.version, _ = strconv.ParseInt(r.Value.Version, 10, 64) // we have written it
			e.agent = unique.Make(r.Value.Agent())
			e.state, e.facts = unique.Make(r.Value.State), unique.Make(r.Value.Resolved.Facts)
		}
	case strings.HasPrefix(key, statusPrefix):
		if r, err := decode[Status](key, data, revision); err == nil && r.Value.Ready != nil {
			e.state = unique.Make(r.Value.Ready.Status)
		}
	case strings.HasPrefix(key, subscriptionPrefix):
		if r, err := decode[Subscription](key, data, revision); err == nil {
			e.state = unique.Make(r.Value.State)
		}
	}
	return e
}

// Follow keeps the index up to date until ctx ends. What it cannot follow any more it loads again.
func (x *Index) Follow(ctx context.Context, say func(error)) {
	for ctx.Err() == nil {
		if err := x.watch(ctx); err != nil && ctx.Err() == nil {
			say(err)
		}
		for ctx.Err() == nil {
			err := x.Load(ctx)
			if err == nil {
				break
			}
			say(err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

// watch applies changes until the watch breaks.
func (x *Index) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	events := x.client.Watch(ctx, indexed, clientv3.WithPrefix(), clientv3.WithRev(x.revision.Load()+1), clientv3.WithProgressNotify())
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C: // has the store say that it is there, and how far it is
			if err := x.client.RequestProgress(ctx); err != nil {
				return fmt.Errorf("cannot follow the store: %w", err)
			}
		case got, ok := <-events:
			if !ok {
				return errors.New("cannot follow the store: the watch has ended")
			}
			if err := got.Err(); err != nil {
				return fmt.Errorf("cannot follow the store: %w", err)
			}
			x.apply(got)
		}
	}
}

func (x *Index) apply(got clientv3.WatchResponse) {
	x.mu.Lock()
	for _, e := range got.Events {
		key := string(e.Kv.Key)
		if e.Type == clientv3.EventTypeDelete {
			x.tree.Delete(at(key))
		} else {
			x.tree.ReplaceOrInsert(x.newEntry(key, e.Kv.Value, e.Kv.ModRevision))
		}
	}
	x.mu.Unlock()
	x.revision.Store(got.Header.Revision)
	x.heard.Store(time.Now().UnixNano())
}

// Age is how long ago the store was last heard of.
func (x *Index) Age() time.Duration { return time.Since(time.Unix(0, x.heard.Load())) }

// Revision is how far the index is.
func (x *Index) Revision() int64 { return x.revision.Load() }

// Poll is what a conditional GET of a node needs.
type Poll struct {
	Version string // configVersion
	Agent   string // Node.Agent
}

// Poll looks a node up by its key.
func (x *Index) Poll(key string) (Poll, bool) {
	e, ok := x.get(nodePrefix + key)
	if !ok {
		return Poll{}, false
	}
	return Poll{Version: strconv.FormatInt(e.version, 10), Agent: e.agent.Value()}, true
}

func (x *Index) get(key string) (entry, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.tree.Get(at(key))
}

// Cluster looks a cluster up by its key.
func (x *Index) Cluster(key string) (Row[Cluster], error) {
	return lookup[Cluster](x, clusterPrefix, key)
}

// SubscriptionState looks up the state of a subscription by its id in lower case; "" for one that is not known.
func (x *Index) SubscriptionState(id string) string {
	e, ok := x.get(subscriptionPrefix + id)
	if !ok {
		return ""
	}
	return e.state.Value()
}

// Status looks up what is said of a node.
func (x *Index) Status(key string) (Row[Status], error) { return lookup[Status](x, statusPrefix, key) }

func lookup[T any](x *Index, prefix, key string) (Row[T], error) {
	e, ok := x.get(prefix + key)
	if !ok {
		return Row[T]{Key: key}, nil
	}
	return read[T](x, key, e)
}

func read[T any](x *Index, key string, e entry) (Row[T], error) {
	data, err := x.packer.unpack([]byte(e.blob[e.keyLen:]))
	if err != nil {
		return Row[T]{}, err
	}
	return decode[T](key, data, e.revision)
}

// Node looks a node up by its key.
func (x *Index) Node(key string) (Row[Node], error) { return lookup[Node](x, nodePrefix, key) }

// Nodes returns up to limit nodes after a key among those that begin with a prefix, and whether there are more.
func (x *Index) Nodes(prefix, after string, limit int) ([]Row[Node], bool, error) {
	return list[Node](x, nodePrefix, prefix, after, limit)
}

// Clusters returns up to limit clusters after a key among those that begin with a prefix, and whether there are more.
func (x *Index) Clusters(prefix, after string, limit int) ([]Row[Cluster], bool, error) {
	return list[Cluster](x, clusterPrefix, prefix, after, limit)
}

func list[T any](x *Index, table, prefix, after string, limit int) ([]Row[T], bool, error) {
	from := table + prefix
	if after != "" {
		from = max(from, table+after+"\x00")
	}
	var found []entry
	x.mu.RLock()
	x.tree.AscendGreaterOrEqual(at(from), func(e entry) bool {
		if !strings.HasPrefix(e.key(), table+prefix) {
			return false
		}
		found = append(found, e)
		return len(found) <= limit
	})
	x.mu.RUnlock()
	more := len(found) > limit
	rows := make([]Row[T], 0, len(found))
	for _, e := range found[:min(limit, len(found))] {
		r, err := read[T](x, strings.TrimPrefix(e.key(), table), e)
		if err != nil {
			return nil, false, err
		}
		rows = append(rows, r)
	}
	return rows, more, nil
}

// Unsettled returns nodes below a prefix that are being deleted, or, when facts is not "", were not made with these facts and did not fail; at
// most limit.
func (x *Index) Unsettled(prefix, facts string, deleting, failed string, limit int) []string {
	now, gone, bad := unique.Make(facts), unique.Make(deleting), unique.Make(failed)
	var keys []string
	x.mu.RLock()
	defer x.mu.RUnlock()
	x.tree.AscendGreaterOrEqual(at(nodePrefix+prefix), func(e entry) bool {
		if !strings.HasPrefix(e.key(), nodePrefix+prefix) {
			return false
		}
		if e.state == gone || facts != "" && e.facts != now && e.state != bad {
			keys = append(keys, e.key()[len(nodePrefix):])
		}
		return len(keys) < limit
	})
	return keys
}

// Count counts the nodes by their state and by that of their Ready condition.
func (x *Index) Count() map[[2]string]int {
	count := map[[2]string]int{}
	x.mu.RLock()
	defer x.mu.RUnlock()
	x.tree.AscendRange(at(nodePrefix), at(clientv3.GetPrefixRangeEnd(nodePrefix)), func(e entry) bool {
		ready := ""
		if status, ok := x.tree.Get(at(statusPrefix + e.key()[len(nodePrefix):])); ok {
			ready = status.state.Value()
		}
		count[[2]string{e.state.Value(), ready}]++
		return true
	})
	return count
}
