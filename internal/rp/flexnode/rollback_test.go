package flexnode

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

// rollBack decides on a rollback, and keeps what comes of it.
func (w *world) rollBack(to int64) (Decision, error) {
	w.t.Helper()
	ask := Rollback{
		To: must(w.history.Find(to)), Desired: w.last(), Parent: w.parent, By: "ops", At: w.now,
		Secret: Secret{Version: w.version, Known: w.secret != ""}, Joins: !w.runs,
	}
	ask.Parent.Defaults = w.layers[ask.To.Defaults]
	d, err := RollBack(ask, *w.node)
	if err != nil {
		return d, err
	}
	if d.DropSecret {
		w.secret, w.version = "", 0
	}
	w.keep(d.Node, d.Revision)
	return d, nil
}

// After a rollback the node is what it was, with a later version; a PUT of what a GET shows then
// changes nothing, nor does another rollback to the same.
func TestRollBack(t *testing.T) {
	g := generator(t)
	for range 300 {
		w := newWorld(t)
		configs := map[int64]string{}
		for range 2 + g.IntN(8) {
			w.now = w.now.Add(time.Duration(g.IntN(100)) * time.Second)
			if d, problems := w.decide(randomDesired(g)); len(problems) == 0 {
				w.keep(d.Node, d.Revision)
				configs[w.node.Revision] = w.config(w.last())
			}
		}
		if w.node == nil {
			continue
		}
		all := must(w.history.All())
		to := pick(g, all...)
		before := *w.node
		d, err := w.rollBack(to.Version)
		if e, refused := errors.AsType[*arm.Error](err); refused {
			if to.SecretVersion == 0 || to.SecretVersion == w.version {
				t.Fatalf("%v, although its secret is kept", e)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(configs[to.Version], w.config(w.last())); diff != "" {
			t.Fatalf("another configuration: %s", diff)
		}
		if d.Revision != nil && d.Revision.Version <= before.Revision {
			t.Fatalf("version %d after %d", d.Revision.Version, before.Revision)
		}
		shown := Shown(*w.node, nil, nil, nil).Properties.Desired
		put, problems := w.decide(shown)
		if len(problems) > 0 || put.Changed || put.Revision != nil || put.Write {
			t.Fatalf("a PUT of what is shown: %v, %+v", problems, put)
		}
		if again, err := w.rollBack(to.Version); err != nil || again.Write {
			t.Fatalf("once more: %v, %+v", err, again)
		}
	}
}

// A rollback has the node be told what is so of its cluster now, and keeps its defaults.
func TestRollBackKeepsFacts(t *testing.T) {
	w := newWorld(t)
	w.defaults(object{"proxy": object{"https": "http://one.example:3128"}})
	w.put(api.Desired{})
	first := w.node.Revision
	w.defaults(nil)
	f := someFacts()
	f.ServerURL = "https://moved.example:6443"
	w.reach(f, "1.35.4")
	w.put(api.Desired{NodeConfig: api.NodeConfig{MaxPods: 50}})
	if _, err := w.rollBack(first); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Proxy struct{ HTTPS string }
		Node  struct {
			MaxPods int
			Kubelet struct{ ServerURL string }
		}
	}
	if err := json.Unmarshal([]byte(w.config(w.last())), &got); err != nil {
		t.Fatal(err)
	}
	if got.Node.Kubelet.ServerURL != f.ServerURL || got.Node.MaxPods == 50 ||
		got.Proxy.HTTPS == "" {
		t.Errorf("%+v", got)
	}
}

func TestRollBackIsRefused(t *testing.T) {
	secret := func(s string) api.Desired {
		d := typical()
		d.AzureAuth.ServicePrincipal.ClientSecret = s
		return d
	}
	tests := map[string]struct {
		first, second api.Desired
		spoil         func(*world)
		want          string
	}{
		"another secret":     {secret("a"), secret("b"), nil, "SecretNotKept"},
		"no secret any more": {secret("a"), api.Desired{}, nil, "SecretNotKept"},
		"a cluster that has moved on": {
			api.Desired{Versions: api.Versions{Kubernetes: "1.34.4"}},
			api.Desired{Versions: api.Versions{Kubernetes: "1.35.4"}},
			func(w *world) { w.reach(someFacts(), "1.39.0") }, "",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put(test.first)
			first := w.node.Revision
			w.put(test.second)
			if test.spoil != nil {
				test.spoil(w)
			}
			_, err := w.rollBack(first)
			if e, _ := errors.AsType[*arm.Error](err); e != nil && e.Code == test.want {
				return
			}
			problems, _ := errors.AsType[Problems](err)
			if test.want != "" || len(problems) == 0 {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestDiff(t *testing.T) {
	from := object{
		"same": object{"a": json.Number("1")}, "gone": object{"x": "y", "n": json.Number("7")},
		"node": object{"maxPods": json.Number("30"), "labels": object{"a.b/c": "old", "k": "v"},
			"taints": []any{"a=b:NoSchedule"}},
		"kind": "text",
	}
	to := object{
		"same": object{"a": json.Number("1")}, "node": object{
			"maxPods": json.Number("50"), "labels": object{"a.b/c": "new", "k": "v"},
			"taints": []any{"a=b:NoSchedule", "c:NoExecute"}},
		"kind": object{"now": true},
	}
	s := func(text string) *string { return &text }
	want := api.Diff{Disruption: "restart", Changes: []api.Change{
		{Path: "gone.n", From: s("7"), Disruption: "restart"},
		{Path: "gone.x", From: s("y"), Disruption: "restart"},
		{Path: "kind", From: s("text"), To: s(`{"now":true}`), Disruption: "restart"},
		{Path: `node.labels["a.b/c"]`, From: s("old"), To: s("new"), Disruption: "none"},
		{Path: "node.maxPods", From: s("30"), To: s("50"), Disruption: "restart"},
		{Path: "node.taints", From: s(`["a=b:NoSchedule"]`),
			To: s(`["a=b:NoSchedule","c:NoExecute"]`), Disruption: "none"},
	}}
	if diff := cmp.Diff(want, Diff(from, to)); diff != "" {
		t.Error(diff)
	}
	if got := Diff(to, to); len(got.Changes) != 0 || got.Disruption != "none" {
		t.Errorf("a configuration differs from itself: %v", got)
	}
	minor := func(v string) object { return object{"kubernetes": object{"version": v}} }
	if got := Diff(minor("1.34.4"), minor("1.35.0")).Disruption; got != "drain" {
		t.Errorf("another minor version: %s", got)
	}
}
