package front

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/rollout"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// upgrading puts a node with a version of Kubernetes, and returns its configVersion.
func (w *world) upgrading(name, kubernetes string) string {
	w.t.Helper()
	w.clock.Pass(1e9)
	body := strings.Replace(withPrincipal, "1.34.4", kubernetes, 1)
	status := w.do("PUT", nodeURL(name), body)
	return shownNode(w.t, readAll(w.t, status.Body)).Properties.ConfigVersion
}

// desires is the version of the revision that is wanted of a node.
func (w *world) desires(name string) string { return decimal(w.storedNode(name).Revision) }

func (w *world) report(name, applied, failed string) {
	w.t.Helper()
	body := `{"appliedConfigVersion":"` + applied + `"}`
	if failed != "" {
		body = fmt.Sprintf(`{"config":{"applied":"%s","failed":{"version":"%s","reason":"NotReady"}}}`,
			applied, failed)
	}
	w.must(204, "POST", nodeURL(name, "/reportStatus"), body)
}

// admit has the owner of the cluster do a round of its rollout.
func (w *world) admit() {
	w.t.Helper()
	w.caughtUp()
	must(w.rollout().Step(context.Background()))
	w.caughtUp()
}

// rollout is the rollout of the cluster's owner.
func (w *world) rollout() *rollout.Rollout {
	return &rollout.Rollout{
		Store: w.api.Store, Index: w.index, Cluster: clusterKey, Now: w.clock.Now,
		Fence: store.Condition{Key: "/nobody/else"}, Log: slog.New(slog.DiscardHandler),
		Heard: func(string) bool { return true },
	}
}

// A node that has failed is offered what it runs, its ETag says so, and it is offered the same
// again when a person asks for it.
func TestNodeThatFails(t *testing.T) {
	w := newEdge(t)
	first := w.upgrading("n", "1.34.4")
	w.report("n", first, "")
	w.caughtUp()
	second := w.upgrading("n", "1.35.0")
	w.admit()
	r, text := w.must(200, "GET", nodeURL("n"), "")
	offered := r.Header.Get("ETag")
	if n := shownNode(t, text); n.Properties.ConfigVersion != second {
		t.Fatalf("it is not admitted: %s", text)
	}
	w.report("n", first, second)
	w.admit()
	told := w.node(200, "GET", nodeURL("n"), "", uidHeader+": "+w.storedNode("n").UID)
	if got := told.Properties.ConfigVersion; got != first {
		t.Errorf("the agent is offered %s", got)
	}
	r, text = w.must(200, "GET", nodeURL("n"), "", "If-None-Match: "+offered)
	n := shownNode(t, text)
	if n.Properties.ConfigVersion != second || n.Properties.Versions.Kubernetes != "1.35.0" ||
		r.Header.Get("ETag") == offered || !strings.Contains(text, `"reason":"Failed"`) {
		t.Errorf("after the failure: %s", text)
	}
	w.must(304, "GET", nodeURL("n"), "", "If-None-Match: "+n.ETag)
	w.must(200, "PUT", nodeURL("n"), text) // changes nothing
	if w.desires("n") != second {
		t.Error("an equal PUT has changed it")
	}
	_, text = w.must(200, "POST", nodeURL("n", "/listHistory"), "")
	if all := decoded[api.History](t, text).Revisions; !all[0].Failed || !all[0].Desired ||
		all[0].Assigned || !all[1].Assigned || !all[1].Applied {
		t.Errorf("history: %s", text)
	}
	_, text = w.must(200, "POST", nodeURL("n", "/rollback"), `{"configVersion":"`+second+`"}`)
	again := shownNode(t, text).Properties
	if again.ConfigVersion <= second || again.Versions.Kubernetes != "1.35.0" {
		t.Errorf("once more: %s", text)
	}
	// The agent still tells of the former failure: that is no news.
	w.report("n", first, second)
	w.admit()
	if now := w.storedNode("n"); decimal(now.Assigned) != again.ConfigVersion {
		t.Errorf("%d is offered", now.Assigned)
	}
	w.report("n", first, again.ConfigVersion)
	w.admit()
	third := w.upgrading("n", "1.34.9")
	w.admit()
	if now := w.storedNode("n"); decimal(now.Assigned) != third || now.Failed != 0 {
		t.Errorf("a change is not offered: %+v", now)
	}
}

// A change that its first node has failed is held, is shown as such, and goes on when more failures
// are allowed; a node that joins waits for nothing. Who has read a node may change it, whatever its
// agent is offered meanwhile.
func TestChangeThatFails(t *testing.T) {
	w := newEdge(t)
	first := map[string]string{}
	for _, name := range []string{"a", "b"} {
		first[name] = w.upgrading(name, "1.34.4")
		w.report(name, first[name], "")
	}
	w.caughtUp()
	for _, name := range []string{"a", "b"} {
		if got := w.upgrading(name, "1.35.0"); got != w.desires(name) {
			t.Errorf("a PUT answers with %s, and %s is desired", got, w.desires(name))
		}
	}
	_, text := w.must(200, "GET", nodeURL("a"), "")
	read := shownNode(t, text)
	w.admit()
	w.must(200, "PUT", nodeURL("a"), text, "If-Match: "+read.ETag)
	w.report("a", first["a"], w.desires("a"))
	w.admit()
	_, text = w.must(200, "POST", summarizeURL, "")
	changes := decoded[api.Summary](t, text).Changes
	if len(changes) != 1 || changes[0].Failed != 1 || changes[0].Held != "CanaryFailed" ||
		changes[0].Waiting != 1 || changes[0].Settings[0] != "kubernetes.version=1.35.0" {
		t.Fatalf("changes: %s", text)
	}
	if n := w.storedNode("b"); decimal(n.Assigned) != first["b"] {
		t.Errorf("%d is offered", n.Assigned)
	}
	if got := w.upgrading("new", "1.35.0"); decimal(w.storedNode("new").Assigned) != got {
		t.Error("a node that joins is not let through")
	}
	w.caughtUp()
	if got := w.names(filtered("state eq 'heldBack' and state ne 'failed'")); got != "b" {
		t.Errorf("held back: %s", got)
	}
	url := cluster + "/allowVersions" + versionQuery
	w.refused(409, "ChangeNotFailed", "POST", url, `{"change":"0123456789ab"}`)
	_, text = w.must(200, "POST", url, `{"change":"`+changes[0].Change+`"}`)
	if allowed := decoded[api.AllowedVersions](t, text).Changes; allowed[0].AllowedBy !=
		"ops@example.com" || allowed[0].AllowedUntil == nil {
		t.Errorf("allowed: %s", text)
	}
	w.admit()
	if n := w.storedNode("b"); decimal(n.Assigned) != w.desires("b") {
		t.Error("what was allowed is not offered")
	}
}

// A registration with a policy that cannot be read is refused; an equal one changes nothing.
func TestRolloutPolicyIsChecked(t *testing.T) {
	w := beside(t)
	body := func(policy string) string {
		return `{"location":"westeurope","properties":{"rolloutPolicy":` + policy + `}}`
	}
	_, text := w.must(400, "PUT", cluster+versionQuery, body(`{"maxUnavailable":"x","soak":"1h"}`))
	if !strings.Contains(text, "rolloutPolicy.maxUnavailable") ||
		!strings.Contains(text, "rolloutPolicy.soak") {
		t.Error(text)
	}
	const good = `{"maxUnavailable":"3","canaries":0,"soak":"PT0S","paused":true}`
	w.must(201, "PUT", cluster+versionQuery, body(good))
	r, text := w.must(200, "PUT", cluster+versionQuery, body(good))
	shown := decoded[api.ManagedCluster](t, text)
	if p := shown.Properties.RolloutPolicy; p == nil || *p.Canaries != 0 || !p.Paused {
		t.Error(text)
	}
	if again, _ := w.must(200, "PUT", cluster+versionQuery, body(good)); again.Header.Get("ETag") !=
		r.Header.Get("ETag") {
		t.Error("an equal PUT has changed the registration")
	}
}

// After a restore from a backup, an agent that has a later configuration than the store is offered
// nothing until its owner changes the node.
func TestRestoredStoreOffersNothing(t *testing.T) {
	w := newEdge(t)
	w.upgrading("n", "1.34.4")
	n := w.storedNode("n")
	later := n
	later.Revision, later.Assigned = n.Revision+5, n.Revision+5
	r, _ := w.must(304, "GET", nodeURL("n"), "", "If-None-Match: "+later.ETag())
	if r.Header.Get("ETag") != later.ETag() {
		t.Errorf("another ETag: %s", r.Header.Get("ETag"))
	}
	w.report("n", decimal(later.Revision), "")
	w.admit()
	_, text := w.must(200, "GET", nodeURL("n"), "")
	if !strings.Contains(text, `"reason":"Restored"`) || w.storedNode("n").Assigned != n.Assigned {
		t.Error(text)
	}
	w.clock.Pass(10e9)
	second := w.upgrading("n", "1.35.0")
	w.admit()
	_, text = w.must(200, "GET", nodeURL("n"), "", "If-None-Match: "+later.ETag())
	if shownNode(t, text).Properties.ConfigVersion != second {
		t.Errorf("not released by a PUT: %s", text)
	}
}
