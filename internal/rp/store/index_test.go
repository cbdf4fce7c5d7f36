package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

func node(name string, revision int64) flexnode.Node {
	return flexnode.Node{
		ID: "/" + name, UID: "1234abcd-0000-4000-8000-00000000" + name, Revision: revision,
		Assigned: revision, Facts: "f1", Identity: "app:tenant/client",
	}
}

func putNode(t *testing.T, s *Store, key string, n flexnode.Node) int64 {
	t.Helper()
	return update(t, s, func(v *View) error { return s.Nodes.Set(v, key, n) })
}

func putStatus(t *testing.T, s *Store, key, ready string) int64 {
	t.Helper()
	return update(t, s, func(v *View) error {
		return s.Status.Set(v, key, flexnode.Status{Ready: &api.Condition{Status: ready}})
	})
}

func dropNode(t *testing.T, s *Store, key string) int64 {
	t.Helper()
	return update(t, s, func(v *View) error {
		s.Nodes.Delete(v, key)
		s.Status.Delete(v, key)
		return nil
	})
}

// following loads an index and has it follow, until the test ends; it counts the breaks.
func following(t *testing.T, s *Store) (*Index, *atomic.Int64) {
	t.Helper()
	x := NewIndex(s)
	if err := x.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	breaks := &atomic.Int64{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.Follow(ctx, func(error) { breaks.Add(1) })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return x, breaks
}

func TestIndexFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(NewMemory())
		putNode(t, s, "s/g/idx/before", node("b", 1))
		x, _ := following(t, s)
		var revision int64
		for i := range 5 {
			putNode(t, s, fmt.Sprintf("s/g/idx/n%d", i), node(fmt.Sprint(i), int64(i)))
			revision = putNode(t, s, fmt.Sprintf("s/g/idx2/n%d", i), node("x", 9))
		}
		synctest.Wait()
		if x.Revision() != revision || x.Age() != 0 {
			t.Errorf("at %d of %d, %v old", x.Revision(), revision, x.Age())
		}
		want := Poll{UID: node("3", 3).UID, ETag: `"1234abcd-3"`, Identity: "app:tenant/client"}
		if p, ok := x.Poll("s/g/idx/n3"); !ok || p != want {
			t.Errorf("poll: %+v, %v", p, ok)
		}
		if _, ok := x.Poll("s/g/idx/before"); !ok {
			t.Error("a row from before the start is not in the index")
		}
		first, more, err := x.Nodes("s/g/idx/", "s/g/idx/before", 3)
		if err != nil || !more || len(first) != 3 || first[2].Key != "s/g/idx/n2" {
			t.Errorf("first page: %+v, %v, %v", first, more, err)
		}
		rest, more, err := x.Nodes("s/g/idx/", first[2].Key, 3)
		if err != nil || more || len(rest) != 2 || rest[1].Key != "s/g/idx/n4" {
			t.Errorf("second page: %+v, %v, %v", rest, more, err)
		}
		if diff := cmp.Diff(node("4", 4), rest[1].Value); diff != "" {
			t.Error(diff)
		}
		dropNode(t, s, "s/g/idx/n3")
		synctest.Wait()
		if _, ok := x.Poll("s/g/idx/n3"); ok {
			t.Error("a deleted node is still in the index")
		}
		if row, err := x.Node("s/g/idx/n3"); err != nil || row.Exists() {
			t.Errorf("a deleted node: %+v, %v", row, err)
		}
	})
}

// A node and its status come and go by themselves.
func TestIndexOfStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(NewMemory())
		x, _ := following(t, s)
		at := putStatus(t, s, "s/g/c/n", "True")
		synctest.Wait()
		if row, err := x.Status("s/g/c/n"); err != nil || row.Revision != at ||
			row.Value.Ready.Status != "True" {
			t.Errorf("%+v, %v", row, err)
		}
		if _, ok := x.Poll("s/g/c/n"); ok {
			t.Error("a status alone is polled")
		}
		if rows, _, _ := x.Nodes("", "", 10); len(rows) != 0 || len(x.Counts()) != 0 {
			t.Errorf("a status alone is a node: %v, %v", rows, x.Counts())
		}
		changed := node("n", 5)
		changed.State, changed.Former, changed.Credential = "Updating", "app:old", "s/g/c/cred"
		putNode(t, s, "s/g/c/n", changed)
		synctest.Wait()
		want := Poll{changed.UID, changed.ETag(), changed.Identity, "app:old", "Updating", true}
		if p, _ := x.Poll("s/g/c/n"); p != want {
			t.Errorf("%+v", p)
		}
		update(t, s, func(v *View) error {
			s.Nodes.Delete(v, "s/g/c/n")
			return nil
		})
		synctest.Wait()
		if row, err := x.Status("s/g/c/n"); err != nil || row.Revision != at {
			t.Errorf("the status went with its node: %+v, %v", row, err)
		}
		dropNode(t, s, "s/g/c/n")
		synctest.Wait()
		if row, err := x.Status("s/g/c/n"); err != nil || row.Exists() {
			t.Errorf("%+v, %v", row, err)
		}
		if n := x.snapshot.Load().nodes.Len(); n != 0 {
			t.Errorf("%d are left", n)
		}
	})
}

func TestIndexOfClustersAndSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(NewMemory())
		x, _ := following(t, s)
		update(t, s, func(v *View) error {
			for _, key := range []string{"s/g/a", "s/g/b", "s/h/c"} {
				if err := s.Clusters.Set(v, key, flexnode.Cluster{ID: key}); err != nil {
					return err
				}
			}
			return s.Subscriptions.Set(v, "s", flexnode.Subscription{State: "Warned"})
		})
		synctest.Wait()
		if c, err := x.Cluster("s/g/b"); err != nil || c.Value.ID != "s/g/b" || !c.Exists() {
			t.Errorf("%+v, %v", c, err)
		}
		if c, err := x.Cluster("s/g/none"); err != nil || c.Exists() {
			t.Errorf("%+v, %v", c, err)
		}
		page, more, err := x.Clusters("s/g/", "", 1)
		if err != nil || !more || len(page) != 1 || page[0].Key != "s/g/a" {
			t.Errorf("%+v, %v, %v", page, more, err)
		}
		page, more, err = x.Clusters("s/g/", "s/g/a", 1)
		if err != nil || more || len(page) != 1 || page[0].Key != "s/g/b" {
			t.Errorf("%+v, %v, %v", page, more, err)
		}
		if x.Subscription("s") != "Warned" || x.Subscription("t") != "" {
			t.Errorf("%q, %q", x.Subscription("s"), x.Subscription("t"))
		}
		update(t, s, func(v *View) error {
			s.Clusters.Delete(v, "s/g/a")
			s.Subscriptions.Delete(v, "s")
			return nil
		})
		synctest.Wait()
		if c, err := x.Cluster("s/g/a"); err != nil || c.Exists() || x.Subscription("s") != "" {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// M22: a break is no reason to load everything again; only when the changes are not kept.
func TestIndexResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		its := m.Another()
		s := New(m)
		putNode(t, s, "s/g/c/a", node("a", 1))
		putNode(t, s, "s/g/c/gone", node("g", 1))
		x, breaks := following(t, New(its))
		its.Before(func(Call) error { return errors.New("no leader") })
		its.Break()
		synctest.Wait()
		putNode(t, s, "s/g/c/a", node("a", 2))
		dropNode(t, s, "s/g/c/gone")
		last := putNode(t, s, "s/g/c/b", node("b", 1))
		time.Sleep(time.Minute)
		if breaks.Load() < 10 || x.Age() < time.Minute {
			t.Errorf("%d breaks, %v old", breaks.Load(), x.Age())
		}
		before := m.Reads()
		its.Before(nil)
		time.Sleep(2 * followPause)
		if x.Revision() != last || m.Reads() != before {
			t.Errorf("at %d of %d after %d reads", x.Revision(), last, m.Reads()-before)
		}
		if p, _ := x.Poll("s/g/c/a"); p.ETag != `"1234abcd-2"` {
			t.Errorf("%+v", p)
		}
	})
}

func TestIndexLoadsAgainWhatIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		its := m.Another()
		s := New(m)
		putNode(t, s, "s/g/c/a", node("a", 1))
		putNode(t, s, "s/g/c/same", node("s", 1))
		putNode(t, s, "s/g/c/gone", node("g", 1))
		x, _ := following(t, New(its))
		kept, _ := x.snapshot.Load().node("s/g/c/same")
		its.Before(func(Call) error { return errors.New("no leader") })
		its.Break()
		synctest.Wait()
		putNode(t, s, "s/g/c/a", node("a", 2))
		last := dropNode(t, s, "s/g/c/gone")
		if err := m.Compact(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		its.Before(nil)
		time.Sleep(2 * followPause)
		if p, _ := x.Poll("s/g/c/a"); p.ETag != `"1234abcd-2"` {
			t.Errorf("%+v", p)
		}
		if _, ok := x.Poll("s/g/c/gone"); ok {
			t.Error("a node that was deleted meanwhile is still there")
		}
		if again, _ := x.snapshot.Load().node("s/g/c/same"); again != kept {
			t.Error("what has not changed was made again")
		}
		putNode(t, s, "s/g/c/after", node("z", 1))
		synctest.Wait()
		if _, ok := x.Poll("s/g/c/after"); !ok {
			t.Error("it does not follow after it has loaded again")
		}
	})
}

// Whatever happens, by changes or by loading again, the index is what the store is, and counts what
// there is.
func TestIndexIsWhatTheStoreIs(t *testing.T) {
	m := NewMemory()
	s := New(m)
	x := NewIndex(s)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	defer func() {
		if t.Failed() {
			t.Logf("the seed was %d", seed)
		}
	}()
	states, ready := []string{"", "Failed", "Creating"}, []string{"True", "False", "Unknown"}
	for range 60 {
		after := x.Revision()
		for range random.IntN(40) {
			key := fmt.Sprintf("s/g/c%d/n%02d", random.IntN(3), random.IntN(30))
			n := node("n", random.Int64N(100))
			n.State, n.Facts = states[random.IntN(3)], fmt.Sprint("f", random.IntN(3))
			switch random.IntN(6) {
			case 0:
				dropNode(t, s, key)
			case 1, 2:
				putStatus(t, s, key, ready[random.IntN(3)])
			case 3:
				update(t, s, func(v *View) error {
					if random.IntN(2) == 0 {
						s.Clusters.Delete(v, flexnode.ClusterOf(key))
						s.Subscriptions.Delete(v, "s")
						return nil
					}
					if err := s.Subscriptions.Set(v, "s", flexnode.Subscription{}); err != nil {
						return err
					}
					return s.Clusters.Set(v, flexnode.ClusterOf(key), flexnode.Cluster{ID: key})
				})
			default:
				putNode(t, s, key, n)
			}
		}
		if random.IntN(2) == 0 {
			if err := x.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
		} else {
			batch, _, err := m.db.since(indexed, after)
			if err != nil {
				t.Fatal(err)
			}
			x.apply(batch)
		}
		compare(t, s, x)
	}
}

// compare holds an index against the tables that it is a copy of.
func compare(t *testing.T, s *Store, x *Index) {
	t.Helper()
	nodes, _, err := s.Nodes.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	have, _, err := x.Nodes("", "", len(nodes)+1)
	if err != nil || len(have) != len(nodes) {
		t.Fatalf("%d nodes of %d, %v", len(have), len(nodes), err)
	}
	for i := range nodes {
		if diff := cmp.Diff(nodes[i], have[i]); diff != "" {
			t.Fatal(diff)
		}
	}
	counts := map[[2]string]int{}
	for _, n := range nodes {
		status, err := s.Status.Get(t.Context(), n.Key)
		if err != nil {
			t.Fatal(err)
		}
		is, err := x.Status(n.Key)
		if diff := cmp.Diff(status, is); err != nil || diff != "" {
			t.Fatal(diff, err)
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
	compareClusters(t, s, x, nodes)
}

func compareClusters(t *testing.T, s *Store, x *Index, nodes []Row[flexnode.Node]) {
	t.Helper()
	clusters, _, err := s.Clusters.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	have, _, err := x.Clusters("", "", 1000)
	if diff := cmp.Diff(fmt.Sprint(clusters), fmt.Sprint(have)); err != nil || diff != "" {
		t.Fatal(diff, err)
	}
	for _, cluster := range []string{"s/g/c0", "s/g/c1", "s/g/c2"} {
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

// A load of several pages, while the store changes and forgets, is of one revision.
func TestIndexLoadsInPages(t *testing.T) {
	m := NewMemory()
	s := New(m)
	for i := range 2*scanPage + 1 {
		putNode(t, s, fmt.Sprintf("s/g/c/%05d", i), node("n", 1))
	}
	pages := 0
	m.Before(func(c Call) error {
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
	if err := x.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p, _ := x.Poll("s/g/c/00000"); p.ETag != `"1234abcd-7"` || pages != 5 {
		t.Errorf("%+v after %d pages", p, pages)
	}
	m.Before(nil)
	compare(t, s, x)
}

func TestIndexTellsSubscribers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(NewMemory())
		x, _ := following(t, s)
		var told []string
		cancel := x.Subscribe(func(table, key string) {
			told = append(told, table+" "+key)
			if _, ok := x.Poll(key); table == "nodes" && !ok {
				t.Error("told before the index has it")
			}
		})
		putNode(t, s, "s/g/c/n", node("n", 1))
		putStatus(t, s, "s/g/c/n", "True")
		update(t, s, func(v *View) error {
			return s.Clusters.Set(v, "s/g/c", flexnode.Cluster{ID: "c"})
		})
		set(t, s, "not", "indexed")
		synctest.Wait()
		if got := fmt.Sprint(told); got != "[nodes s/g/c/n status s/g/c/n clusters s/g/c]" {
			t.Errorf("told %v", got)
		}
		cancel()
		putStatus(t, s, "s/g/c/n", "False")
		synctest.Wait()
		if len(told) != 3 {
			t.Errorf("told %v", told)
		}
	})
}

// A row that cannot be read harms nothing but itself.
func TestIndexWithADamagedRow(t *testing.T) {
	m := NewMemory()
	s := New(m)
	_, err := m.Commit(t.Context(), nil, []Write{
		{Key: s.Nodes.Key("s/g/c/bad"), Value: []byte("{")},
		{Key: s.Clusters.Key("s/g/c"), Value: []byte("{")},
		{Key: s.Status.Key("s/g/c/bad"), Value: []byte("{")},
		{Key: indexed + "newer/x", Value: []byte("{")},
	})
	if err != nil {
		t.Fatal(err)
	}
	putNode(t, s, "s/g/d/n", node("n", 1))
	x := NewIndex(s)
	if err := x.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := x.Poll("s/g/d/n"); !ok {
		t.Error("a good row is missing")
	}
	if _, err := x.Node("s/g/c/bad"); err == nil {
		t.Error("a damaged node was read")
	}
	if _, err := x.Cluster("s/g/c"); err == nil {
		t.Error("a damaged cluster was read")
	}
	if _, err := x.Status("s/g/c/bad"); err == nil {
		t.Error("a damaged status was read")
	}
}

// Polls go on while changes are applied: neither waits for the other (go test -race).
func TestIndexIsReadWhileItChanges(t *testing.T) {
	m := NewMemory()
	s := New(m)
	putNode(t, s, "s/g/c/n", node("n", 0))
	x := NewIndex(s)
	if err := x.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.Follow(ctx, func(err error) { t.Error(err) })
	}()
	last := int64(0)
	for i := int64(1); i <= 200; i++ {
		last = putNode(t, s, "s/g/c/n", node("n", i))
		putNode(t, s, fmt.Sprintf("s/g/c/%d", i), node("n", i))
		if _, ok := x.Poll("s/g/c/n"); !ok {
			t.Fatal("the node is gone")
		}
		if _, _, err := x.Nodes("", "", 10); err != nil {
			t.Fatal(err)
		}
		x.Stale("s/g/c", "f2", 3)
		x.Counts()
	}
	for x.Revision() < last {
		time.Sleep(time.Millisecond)
	}
	if p, _ := x.Poll("s/g/c/n"); p.ETag != `"1234abcd-200"` {
		t.Errorf("%+v", p)
	}
	cancel()
	<-done
}

func TestPackedRowsAreSmallAndWhole(t *testing.T) {
	when := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	n := flexnode.Node{
		ID: "/subscriptions/12345678-90ab-cdef-1234-567890abcdef/resourceGroups/plants/providers/" +
			"Microsoft.ContainerService/managedClusters/north/flexNodeConfig/press-17",
		UID: "0f1e2d3c-4b5a-4968-8778-695a4b3c2d1e",
		Desired: api.Desired{
			AzureAuth:      api.AzureAuth{Method: api.Arc, Arc: &api.ArcAuth{}},
			KubernetesAuth: api.KubernetesAuth{UseAzureAuth: true},
			NodeConfig:     api.NodeConfig{MaxPods: 30, Labels: map[string]string{"line": "7"}},
		},
		Revision: 1777636800, Assigned: 1777636800, Facts: "fedcba9876543210fedcba98",
		Chosen: flexnode.Chosen{Versions: api.Versions{
			Kubernetes: "1.34.4", Containerd: "2.2.1", Runc: "1.3.4", CNI: "1.9.1", NPD: "1.34.0",
		}},
		SystemData: api.SystemData{
			CreatedBy: "0f0f0f0f-1234-5678-9abc-def012345678", CreatedByType: "Application",
			CreatedAt: when, LastModifiedBy: "0f0f0f0f-1234-5678-9abc-def012345678",
			LastModifiedByType: "Application", LastModifiedAt: when,
		},
	}
	row, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	p := newPacker(nil)
	packed := p.pack(row)
	if len(packed) > len(row)/2 {
		t.Errorf("%d bytes are packed into %d", len(row), len(packed))
	}
	got, err := p.unpack(string(packed))
	if err != nil || string(got) != string(row) {
		t.Errorf("%s, %v", got, err)
	}
	t.Logf("%d bytes are packed into %d", len(row), len(packed))
}

// Nodes are found by their identities without unpacking rows.
func TestIndexKnowsIdentities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(NewMemory())
		x, _ := following(t, s)
		for key, ids := range map[string][2]string{
			"s/g/c/a": {"oid:t/one", ""}, "s/g/c/b": {"oid:t/two", "app:t/zero app:t/ONE"},
			"s/g/c/c": {"", ""}, "s/g/c2/a": {"oid:t/one", ""},
		} {
			n := node("x", 1)
			n.Identity, n.Former = ids[0], flexnode.Former(ids[1])
			putNode(t, s, key, n)
		}
		synctest.Wait()
		if got := fmt.Sprint(x.Identified("s/g/c", "one")); got != "[s/g/c/a s/g/c/b]" {
			t.Error(got)
		}
		x.packer = packer{} // nothing can be unpacked
		if got := x.Identified("s/g/c", "three"); len(got) > 0 {
			t.Error(got)
		}
	})
}
