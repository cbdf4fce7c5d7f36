package store

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// outlines are those of all nodes, by key, in a form that can be compared.
func outlines(x *Index) map[string]string {
	all := map[string]string{}
	x.Outlines("", "", func(key string, o flexnode.Outline) bool {
		all[key] = fmt.Sprintf("%+v %+v %+v", o.Wanted.Value(), o.Said.Value(), o.Order)
		return true
	})
	return all
}

// However the rows of nodes have come, one by one or all at once, their outlines are those of the
// rows.
func TestOutlines(t *testing.T) {
	const seed = 7
	g := rand.New(rand.NewPCG(seed, seed))
	s := New(storetest.NewMemory())
	followed, breaks := following(t, s)
	rows := map[string]string{}
	var last int64
	for range 400 {
		key := fmt.Sprintf("s/g/c/n%d", g.IntN(5))
		at, err := s.Update(t.Context(), "test", nil, func(v *View) error {
			return outlineStep(s, v, g.IntN(5), g, key)
		})
		if err != nil {
			t.Fatal(err)
		}
		last = max(last, at)
		node, status := mustGet(t, s.Nodes, key), mustGet(t, s.Status, key)
		delete(rows, key)
		if node.Exists() {
			applied, observed, failed := status.Value.Versions()
			rows[key] = fmt.Sprintf("%+v %+v %+v", flexnode.WantedOf(node.Value),
				flexnode.SaidOf(status.Value), flexnode.Ordered(node.Value.Revision,
					node.Value.Assigned, applied, observed, failed))
		}
	}
	loaded := NewIndex(s)
	if err := loaded.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rows, outlines(loaded)); diff != "" {
		t.Errorf("loaded: %s", diff)
	}
	for followed.Revision() < last {
		Pause(t.Context(), followPause/1000)
	}
	if diff := cmp.Diff(rows, outlines(followed)); diff != "" || breaks.Load() != 0 {
		t.Errorf("followed, %d breaks: %s", breaks.Load(), diff)
	}
}

func mustGet[T any](t *testing.T, table Table[T], key string) Row[T] {
	t.Helper()
	row, err := table.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return row
}

// outlineStep changes or deletes a row of a node.
func outlineStep(s *Store, v *View, what int, g *rand.Rand, key string) error {
	version := func() int64 { return 1_800_000_000 + g.Int64N(3) }
	switch what {
	case 0:
		s.Nodes.Delete(v, key)
		return nil
	case 1:
		s.Status.Delete(v, key)
		return nil
	case 2, 3:
		n := flexnode.Node{
			ID: "/x/" + key, UID: "u-1", Revision: version(), Assigned: version(),
			State:   []string{"", "Failed"}[g.IntN(2)],
			Desired: api.Desired{ContinuousMonitoring: g.IntN(2) == 0},
			Chosen:  flexnode.Chosen{Versions: api.Versions{Kubernetes: fmt.Sprint(g.IntN(3))}},
		}
		if g.IntN(2) == 0 {
			n.Ended = &flexnode.JoinEnd{State: api.JoinExpired}
		}
		return s.Nodes.Set(v, key, n)
	}
	return s.Status.Set(v, key, flexnode.Status{
		Ready: []*api.Condition{nil, {Type: "Ready", Status: "True", Reason: "R"}}[g.IntN(2)],
		Report: api.Report{
			AppliedConfigVersion: fmt.Sprint(version()), AgentVersion: "v1",
			Config: &api.Applied{
				Observed: fmt.Sprint(version()),
				Failed:   &api.FailedConfig{Version: fmt.Sprint(version()), Reason: "NotReady"},
			},
			Components: &api.Components{Kubelet: fmt.Sprint(g.IntN(3))},
			Conditions: []api.Condition{{Type: "Applied", Status: "True", Reason: "two words"}},
		},
	})
}
