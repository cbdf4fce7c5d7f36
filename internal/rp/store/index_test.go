package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

func node(name string, revision int64) flexnode.Node {
	return flexnode.Node{ID: "/" + name, UID: "1234abcd-0000-4000-8000-00000000" + name,
		Revision: revision, Assigned: revision, Facts: "f1", Identity: "app:tenant/client"}
}

func putNode(t *testing.T, s *Store, key string, n flexnode.Node) int64 {
	return setRow(t, s.Nodes, key, n)
}

func putStatus(t *testing.T, s *Store, key, ready string) int64 {
	return setRow(t, s.Status, key, flexnode.Status{Ready: &api.Condition{Status: ready}})
}

func dropNode(t *testing.T, s *Store, key string) int64 {
	return update(t, s, func(v *View) error {
		s.Nodes.Delete(v, key)
		s.Status.Delete(v, key)
		return nil
	})
}

// following loads an index that follows until the test ends, and counts the breaks.
func following(t *testing.T, s *Store) (*Index, *atomic.Int64) {
	x := NewIndex(s)
	must(0, x.Load(t.Context()))
	return x, keepUp(t, x)
}

// pollOf returns what an index has for the polls of a node.
func pollOf(x *Index, key string) Poll {
	p, _ := x.Poll(key)
	return p
}

// polled reports whether an index has a node.
func polled(x *Index, key string) bool {
	_, ok := x.Poll(key)
	return ok
}

// keepUp makes an index follow until the test ends.
func keepUp(t *testing.T, x *Index) *atomic.Int64 {
	breaks := &atomic.Int64{}
	background(t, func(ctx context.Context) { x.Follow(ctx, func(error) { breaks.Add(1) }) })
	return breaks
}

// background calls do in a goroutine until the test ends, or stop is called.
func background(t *testing.T, do func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

func TestIndexFollows(t *testing.T) {
	inMemory(t, func(t *testing.T, _ *storetest.Memory, s *Store) {
		putNode(t, s, "s/g/idx/before", node("b", 1))
		x, _ := following(t, s)
		var revision int64
		for i := range 5 {
			putNode(t, s, fmt.Sprintf("s/g/idx/n%d", i), node(fmt.Sprint(i), int64(i)))
			revision = putNode(t, s, fmt.Sprintf("s/g/idx2/n%d", i), node("x", 9))
		}
		synctest.Wait()
		equal(t, "the revision", x.Revision(), revision)
		equal(t, "the age", x.Age(), 0)
		want := Poll{UID: node("3", 3).UID, ETag: `"1234abcd-3"`, Identity: "app:tenant/client"}
		equal(t, "a poll", pollOf(x, "s/g/idx/n3"), want)
		equal(t, "a row from before the start is in the index", polled(x, "s/g/idx/before"), true)
		rest := rowsOf(x.Nodes("s/g/idx/", "s/g/idx/n2"))
		if len(rest) != 2 || rest[1].Key != "s/g/idx/n4" {
			t.Errorf("those after n2: %+v", rest)
		}
		equal(t, "all", len(rowsOf(x.Nodes("s/g/idx/", ""))), 6)
		equal(t, "the row", rest[1].Value, node("4", 4))
		dropNode(t, s, "s/g/idx/n3")
		synctest.Wait()
		equal(t, "a deleted node is in the index", polled(x, "s/g/idx/n3"), false)
		equal(t, "a deleted node is there", must(x.Node("s/g/idx/n3")).Exists(), false)
	})
}

// A node and its status are added and removed separately.
func TestIndexOfStatus(t *testing.T) {
	inMemory(t, func(t *testing.T, _ *storetest.Memory, s *Store) {
		x, _ := following(t, s)
		at := putStatus(t, s, "s/g/c/n", "True")
		synctest.Wait()
		row := must(x.Status("s/g/c/n"))
		equal(t, "the revision of the status", row.Revision, at)
		equal(t, "the status", row.Value.Ready.Status, "True")
		equal(t, "a status alone is polled", polled(x, "s/g/c/n"), false)
		equal(t, "nodes for a status alone", len(rowsOf(x.Nodes("", ""))), 0)
		equal(t, "counts for a status alone", len(x.Counts()), 0)
		changed := node("n", 5)
		changed.State, changed.Former, changed.Credential = "Updating", "app:old", "s/g/c/cred"
		changed.MachineKey, changed.Boots.Current = "key", "boot"
		changed.Second, changed.Diagnose = &flexnode.SecondMachine{}, &flexnode.Diagnose{}
		putNode(t, s, "s/g/c/n", changed)
		synctest.Wait()
		want := Poll{changed.UID, changed.ETag(), changed.Identity, "app:old", "key", "boot",
			true, true, true}
		equal(t, "a poll", pollOf(x, "s/g/c/n"), want)
		drop(t, s.Nodes, "s/g/c/n")
		synctest.Wait()
		equal(t, "the status without its node", must(x.Status("s/g/c/n")).Revision, at)
		dropNode(t, s, "s/g/c/n")
		synctest.Wait()
		equal(t, "the status of a deleted node is there", must(x.Status("s/g/c/n")).Exists(), false)
		equal(t, "nodes that are left", x.snapshot.Load().nodes.Len(), 0)
	})
}

func TestIndexOfClustersAndSubscriptions(t *testing.T) {
	inMemory(t, func(t *testing.T, _ *storetest.Memory, s *Store) {
		x, _ := following(t, s)
		for _, key := range []string{"s/g/a", "s/g/b", "s/h/c"} {
			putCluster(t, s, key)
		}
		setRow(t, s.Subscriptions, "s", flexnode.Subscription{State: "Warned"})
		synctest.Wait()
		equal(t, "the cluster", must(x.Cluster("s/g/b")).Value.ID, "s/g/b")
		equal(t, "one that never was is there", must(x.Cluster("s/g/none")).Exists(), false)
		if all := rowsOf(x.Clusters("s/g/", "")); len(all) != 2 || all[0].Key != "s/g/a" {
			t.Errorf("%+v", all)
		}
		if rest := rowsOf(x.Clusters("s/g/", "s/g/a")); len(rest) != 1 || rest[0].Key != "s/g/b" {
			t.Errorf("%+v", rest)
		}
		equal(t, "the state of the subscription", x.Subscription("s"), "Warned")
		equal(t, "that of one without a row", x.Subscription("t"), "")
		drop(t, s.Clusters, "s/g/a")
		drop(t, s.Subscriptions, "s")
		synctest.Wait()
		equal(t, "a deleted one is there", must(x.Cluster("s/g/a")).Exists(), false)
		equal(t, "the state of a deleted subscription", x.Subscription("s"), "")
	})
}

// M22: after a break, everything is loaded again if the changes are not kept; if they are, nothing
// is (TestSyncGoesOnAfterABreak).
func TestIndexAfterABreak(t *testing.T) {
	inMemory(t, func(t *testing.T, m *storetest.Memory, s *Store) {
		for _, name := range []string{"a", "same", "gone"} {
			putNode(t, s, "s/g/c/"+name, node(name, 1))
		}
		its := m.Another()
		x, breaks := following(t, New(its))
		cutOff(its)
		putNode(t, s, "s/g/c/a", node("a", 2))
		last := dropNode(t, s, "s/g/c/gone")
		time.Sleep(time.Minute)
		if breaks.Load() < 10 || x.Age() < time.Minute {
			t.Errorf("%d breaks, %v old", breaks.Load(), x.Age())
		}
		must(0, m.Compact(t.Context(), last))
		told := map[string]bool{}
		x.Subscribe(func(_, key string) { told[key] = true })
		its.Before(nil)
		time.Sleep(4 * followPause)
		synctest.Wait() // before told is read
		equal(t, "the revision", x.Revision(), last)
		equal(t, "the changed node", pollOf(x, "s/g/c/a").ETag, `"1234abcd-2"`)
		equal(t, "a node that was deleted meanwhile is there", polled(x, "s/g/c/gone"), false)
		if !polled(x, "s/g/c/same") || !told["s/g/c/gone"] || !told["s/g/c/a"] {
			t.Errorf("told %v", told)
		}
		putNode(t, s, "s/g/c/after", node("z", 1))
		synctest.Wait()
		equal(t, "it follows after the break", polled(x, "s/g/c/after"), true)
	})
}

// cutOff makes each call of a connection fail, and ends its Follow.
func cutOff(m *storetest.Memory) {
	m.Before(func(storetest.Call) error { return errors.New("no route") })
	m.Break()
	synctest.Wait()
}

func TestIndexTellsSubscribers(t *testing.T) {
	inMemory(t, func(t *testing.T, _ *storetest.Memory, s *Store) {
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
		putCluster(t, s, "s/g/c")
		set(t, s, "not", "indexed")
		synctest.Wait()
		equal(t, "what was told", fmt.Sprint(told), "[nodes s/g/c/n status s/g/c/n clusters s/g/c]")
		cancel()
		putStatus(t, s, "s/g/c/n", "False")
		synctest.Wait()
		equal(t, "what was told", len(told), 3)
	})
}

// A row that cannot be read affects no other.
func TestIndexWithADamagedRow(t *testing.T) {
	m, s := newMemory()
	put(t, m, s.Nodes.Key("s/g/c/bad"), "{", s.Clusters.Key("s/g/c"), "{",
		s.Status.Key("s/g/c/bad"), "{", indexed+"newer/x", "{")
	putNode(t, s, "s/g/d/n", node("n", 1))
	x, _ := following(t, s)
	equal(t, "a good row is there", polled(x, "s/g/d/n"), true)
	_, err := x.Node("s/g/c/bad")
	refused(t, "a damaged node", err, "")
	_, err = x.Cluster("s/g/c")
	refused(t, "a damaged cluster", err, "")
	_, err = x.Status("s/g/c/bad")
	refused(t, "a damaged status", err, "")
	equal(t, "the version of a damaged status", x.Applied("s/g/c/bad"), -1)
}

// Nodes are found by their identities without unpacking rows.
func TestIndexKnowsIdentities(t *testing.T) {
	inMemory(t, func(t *testing.T, _ *storetest.Memory, s *Store) {
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
		equal(t, "those of an identity", fmt.Sprint(x.Identified("s/g/c", "one")), "[s/g/c/a s/g/c/b]")
		x.snapshot.Load().nodes.Ascend(func(i item[*entry]) bool {
			i.value.node = "damaged" // nothing can be unpacked
			return true
		})
		equal(t, "those of an unknown identity", len(x.Identified("s/g/c", "three")), 0)
	})
}
