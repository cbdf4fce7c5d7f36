package rollout

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// What is known of a change is kept once for all nodes that wait for it, and only while they do.
func TestChangesAreShared(t *testing.T) {
	const cluster, nodes = "s/g/c", 3
	s := store.New(storetest.NewMemory())
	now := time.Unix(1_800_000_000, 0)
	key := func(i int) string { return fmt.Sprintf("%s/n%d", cluster, i) }
	write := func(decide func(v *store.View) error) {
		t.Helper()
		if _, err := s.Update(t.Context(), "test", nil, decide); err != nil {
			t.Fatal(err)
		}
	}
	revision := func(version int64, pods int) flexnode.Revision {
		own := fmt.Appendf(nil, `{"node":{"maxPods":%d}}`, pods)
		return flexnode.Revision{Version: version, Own: json.RawMessage(own), Why: "put"}
	}
	write(func(v *store.View) error {
		c := flexnode.Cluster{}
		c.Properties.Reachable = true
		return s.Clusters.Set(v, cluster, c)
	})
	for i := range nodes {
		write(func(v *store.View) error {
			h := flexnode.History{}.With(revision(1, 50)).With(revision(2, 60))
			var status flexnode.Status
			status.Report.AppliedConfigVersion = "1"
			n := flexnode.Node{UID: key(i), Revision: 2, Assigned: 1}
			n.Desired.ContinuousMonitoring = true
			if err := s.History.Set(v, key(i), h); err != nil {
				return err
			}
			if err := s.Status.Set(v, key(i), status); err != nil {
				return err
			}
			return s.Nodes.Set(v, key(i), n)
		})
	}
	index := store.NewIndex(s)
	r := &Rollout{
		Store: s, Index: index, Cluster: cluster, Fence: store.Condition{Key: "/none/other"},
		Heard: func(string) bool { return false }, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return now },
	}
	step := func() {
		t.Helper()
		if err := index.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
		if _, err := r.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	step()
	first := r.changes[key(0)].change.Settings
	if len(r.changes) != nodes || len(first) != 1 {
		t.Fatalf("%d nodes, %v", len(r.changes), first)
	}
	for i := range nodes {
		if own := r.changes[key(i)].change.Settings; &own[0] != &first[0] {
			t.Errorf("%s has a copy: %v", key(i), own)
		}
	}
	for i := range nodes {
		write(func(v *store.View) error { s.Nodes.Delete(v, key(i)); return nil })
	}
	r.moving = true
	step()
	if len(r.changes)+len(r.shared) > 0 {
		t.Errorf("%v and %v are left", r.changes, r.shared)
	}
}
