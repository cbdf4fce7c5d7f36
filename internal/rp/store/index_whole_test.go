package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// After any changes and reloads, the index equals the store, and its counts are right.
func TestIndexIsWhatTheStoreIs(t *testing.T) {
	m, s := newMemory()
	x := NewIndex(s)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	defer func() {
		if t.Failed() {
			t.Logf("the seed was %d", seed)
		}
	}()
	for range 60 {
		after := x.Revision()
		for range random.IntN(40) {
			key := fmt.Sprintf("s/g/c%d/n%02d", random.IntN(3), random.IntN(30))
			switch random.IntN(6) {
			case 0:
				dropNode(t, s, key)
			case 1, 2:
				setRow(t, s.Status, key, someStatus(random))
			case 3:
				if random.IntN(2) == 0 {
					drop(t, s.Clusters, flexnode.ClusterOf(key))
					drop(t, s.Subscriptions, "s")
				} else {
					setRow(t, s.Subscriptions, "s", flexnode.Subscription{})
					setRow(t, s.Clusters, flexnode.ClusterOf(key), flexnode.Cluster{ID: key})
				}
			default:
				putNode(t, s, key, someNode(random))
			}
		}
		if random.IntN(2) == 0 {
			must(0, x.Load(t.Context()))
		} else {
			x.apply(changes(t, m, indexed, after))
		}
		compare(t, s, x)
	}
}

func someNode(g *rand.Rand) flexnode.Node {
	n := node("n", g.Int64N(3))
	n.Assigned, n.Facts = g.Int64N(3), fmt.Sprint("f", g.IntN(3))
	n.State = []string{"", "Failed", "Creating"}[g.IntN(3)]
	n.Desired.ContinuousMonitoring = g.IntN(2) == 0
	n.Chosen.Versions.Kubernetes = fmt.Sprint(g.IntN(3))
	n.Ended = []*flexnode.JoinEnd{nil, {State: api.JoinExpired}}[g.IntN(2)]
	return n
}

func someStatus(g *rand.Rand) flexnode.Status {
	version := func() string { return fmt.Sprint(1_800_000_000 + g.IntN(3)) }
	ready := []string{"", "True", "False", "Unknown"}[g.IntN(4)]
	s := flexnode.Status{Report: api.Report{
		AppliedConfigVersion: version(), AgentVersion: "v1",
		Config: &api.Applied{Observed: version(),
			Failed: &api.FailedConfig{Version: version(), Reason: "NotReady"}},
		Components: &api.Components{Kubelet: fmt.Sprint(g.IntN(3))},
		Conditions: []api.Condition{{Type: "Applied", Status: "True", Reason: "two words"}},
	}}
	if ready != "" {
		s.Ready = &api.Condition{Type: "Ready", Status: ready, Reason: "R"}
	}
	return s
}

// changes returns those below a prefix after a revision.
func changes(t *testing.T, b Backend, prefix string, after int64) (got Batch) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := b.Follow(ctx, prefix, after, func(told Batch) {
		got = told
		cancel()
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return got
}

// rowsOf returns the rows that an index yields.
func rowsOf[T any](rows iter.Seq2[Row[T], error]) (all []Row[T]) {
	for row, err := range rows {
		all = append(all, must(row, err))
	}
	return all
}

// compare compares an index with the tables that it copies.
func compare(t *testing.T, s *Store, x *Index) {
	t.Helper()
	nodes := rowsIn(t, s.Nodes)
	if diff := cmp.Diff(nodes, rowsOf(x.Nodes("", ""))); diff != "" {
		t.Fatal(diff)
	}
	unsettled := map[string]bool{}
	counts := map[[2]string]int{}
	for _, n := range nodes {
		status := must(s.Status.Get(t.Context(), n.Key))
		is, err := x.Status(n.Key)
		if diff := cmp.Diff(status, is); err != nil || diff != "" {
			t.Fatal(diff, err)
		}
		wanted := flexnode.WantedOf(n.Value)
		if got := x.entry(n.Key).wanted.Value(); got != wanted {
			t.Fatalf("the values of %s are %+v, want %+v", n.Key, got, wanted)
		}
		if wanted.Unsettled(n.Value.Revision, n.Value.Assigned, status.Value.Applied(),
			status.Value.Failed()) {
			unsettled[flexnode.ClusterOf(n.Key)] = true
		}
		ready := ""
		if status.Value.Ready != nil {
			ready = status.Value.Ready.Status
		}
		counts[[2]string{n.Value.State, ready}]++
	}
	if !maps.Equal(counts, x.Counts()) {
		t.Fatalf("counts are %v, want %v", x.Counts(), counts)
	}
	compareClusters(t, s, x, nodes, unsettled)
}

func compareClusters(
	t *testing.T, s *Store, x *Index, nodes []Row[flexnode.Node], unsettled map[string]bool,
) {
	t.Helper()
	clusters := fmt.Sprint(rowsIn(t, s.Clusters))
	if diff := cmp.Diff(clusters, fmt.Sprint(rowsOf(x.Clusters("", "")))); diff != "" {
		t.Fatal(diff)
	}
	for _, cluster := range []string{"s/g/c0", "s/g/c1", "s/g/c2"} {
		if got := x.Unsettled(cluster); got != unsettled[cluster] {
			t.Fatalf("%s is unsettled: %t, want %t", cluster, got, !got)
		}
		var stale []string
		for _, n := range nodes {
			if flexnode.ClusterOf(n.Key) != cluster {
				continue
			}
			is := n.Value.Facts != "f1"
			if is {
				stale = append(stale, n.Key)
			}
			if x.IsStale(n.Key, "f1") != is || x.IsStale(n.Key+"-none", "f1") {
				t.Fatalf("of %s it is said: %v", n.Key, !is)
			}
		}
		if got := x.Stale(cluster, "f1", 1000); !slices.Equal(got, stale) {
			t.Fatalf("stale are %v, want %v", got, stale)
		}
		if got := x.Stale(cluster, "f1", 2); !slices.Equal(got, stale[:min(2, len(stale))]) {
			t.Fatalf("two stale ones are %v of %v", got, stale)
		}
	}
}

// A load of several pages is of one revision, while the store changes and is compacted.
func TestIndexLoadsInPages(t *testing.T) {
	m, s := newMemory()
	for i := range 9*firstPage + 1 {
		putNode(t, s, fmt.Sprintf("s/g/c/%05d", i), node("n", 1))
	}
	pages := 0
	m.Before(func(c storetest.Call) error {
		if c.Op == "scan" && c.Keys[0] == indexed {
			if pages++; pages == 2 {
				other := m.Another()
				at := putNode(t, New(other), "s/g/c/00000", node("n", 7))
				return other.Compact(t.Context(), at)
			}
		}
		return nil
	})
	x := NewIndex(s)
	must(0, x.Load(t.Context()))
	equal(t, "a node that has changed", pollOf(x, "s/g/c/00000").ETag, `"1234abcd-7"`)
	equal(t, "the pages", pages, 5)
	m.Before(nil)
	compare(t, s, x)
}

// Polls continue while changes are applied: neither waits for the other (go test -race).
func TestIndexIsReadWhileItChanges(t *testing.T) {
	_, s := newMemory()
	putNode(t, s, "s/g/c/n", node("n", 0))
	x, breaks := following(t, s)
	last := int64(0)
	for i := int64(1); i <= 200; i++ {
		last = putNode(t, s, "s/g/c/n", node("n", i))
		putNode(t, s, fmt.Sprintf("s/g/c/%d", i), node("n", i))
		if _, ok := x.Poll("s/g/c/n"); !ok {
			t.Fatal("the node is gone")
		}
		rowsOf(x.Nodes("", ""))
		before := x.Revision()
		if row, err := x.Node("s/g/c/n"); err != nil || row.Revision > x.Revision() {
			t.Errorf("at %d the node is that of %d: %v", before, row.Revision, err)
		}
		x.Stale("s/g/c", "f2", 3)
		x.Counts()
	}
	for x.Revision() < last {
		time.Sleep(time.Millisecond)
	}
	equal(t, "the node", pollOf(x, "s/g/c/n").ETag, `"1234abcd-200"`)
	equal(t, "the breaks", breaks.Load(), 0)
}

// A page has some megabytes for rows of any size; it is limited by bytes.
func TestPagesAreOfBytes(t *testing.T) {
	m, s := newMemory()
	const rows, size = 1500, 16 << 10
	for i := range rows {
		write(t, m, Write{Key: fmt.Sprintf("large/%05d", i), Value: make([]byte, size)})
	}
	read, pages := 0, 0
	must(s.pages(t.Context(), "large/", func(kvs []KV) error {
		if read, pages = read+len(kvs), pages+1; len(kvs)*size > pageBytes {
			t.Errorf("a page of %d rows", len(kvs))
		}
		return nil
	}))
	equal(t, "the rows and pages", []int{read, pages}, []int{rows, 6})
	small := Page{KVs: make([]KV, 1024)}
	equal(t, "after rows without content", nextPage(small), maxPage)
}

// The bytes of nodes are counted by subscription, also after changes.
func TestIndexCountsBytes(t *testing.T) {
	s := New(storetest.NewMemory())
	putNode(t, s, "s/g/c/a", node("a", 1))
	putNode(t, s, "s/g/c/b", node("b", 1))
	putNode(t, s, "other/g/c/a", node("a", 1))
	x, _ := following(t, s)
	two, _ := x.Used("s")
	one, _ := x.Used("other")
	if one.Bytes < 50 || two.Bytes < 2*one.Bytes-50 || two.Bytes > 2*one.Bytes+50 {
		t.Errorf("%d bytes of two nodes, %d of one", two.Bytes, one.Bytes)
	}
}

// The counts of a subscription are those of the revision that comes with them, also while the index
// changes: a claim on a quota ends with its revision.
func TestIndexCountsARevision(t *testing.T) {
	s := New(storetest.NewMemory())
	x, _ := following(t, s)
	_, began := x.Used("s")
	stored := map[int64]int{began: 0}
	for n := 1; n <= 500 && !t.Failed(); n++ {
		revision := putNode(t, s, fmt.Sprint("s/g/c/", n), node("a", 1))
		stored[revision] = n
		for at := began; at < revision && !t.Failed(); {
			var used Used
			used, at = x.Used("s")
			equal(t, fmt.Sprint("nodes of revision ", at), used.Nodes, stored[at])
		}
	}
}
