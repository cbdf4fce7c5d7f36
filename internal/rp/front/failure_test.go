package front

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// upgrading puts a node with a version of Kubernetes, and returns its configVersion.
func (w *world) upgrading(name, kubernetes string) string {
	w.t.Helper()
	w.clock.pass(1e9)
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

// A node that has failed is offered what it runs, its ETag says so, and it is offered the same
// again when somebody asks for it.
func TestNodeThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	first := w.upgrading("n", "1.34.4")
	w.report("n", first, "")
	second := w.upgrading("n", "1.35.0")
	r, _ := w.must(200, "GET", nodeURL("n"), "")
	offered := r.Header.Get("ETag")
	w.report("n", first, second)
	w.caughtUp()
	r, text := w.must(200, "GET", nodeURL("n"), "", "If-None-Match: "+offered)
	n := shownNode(t, text)
	if n.Properties.ConfigVersion != first || n.Properties.Versions.Kubernetes != "1.35.0" ||
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
	if now := w.storedNode("n"); decimal(now.Assigned) != again.ConfigVersion {
		t.Errorf("%d is offered", now.Assigned)
	}
	w.report("n", first, again.ConfigVersion)
	third := w.upgrading("n", "1.34.9")
	if now := w.storedNode("n"); decimal(now.Assigned) != third || now.Failed != 0 {
		t.Errorf("a change is not offered: %+v", now)
	}
}

// When three nodes have failed versions, a node that does not run them is not offered them by a
// PUT, until somebody allows them; reports that come at once are all counted.
func TestVersionsThatFail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	nodes := []string{"a", "b", "c", "d"}
	first := map[string]string{}
	for _, name := range nodes {
		first[name] = w.upgrading(name, "1.34.4")
		w.report(name, first[name], "")
	}
	for _, name := range nodes[:3] {
		w.upgrading(name, "1.35.0")
	}
	w.report("a", first["a"], w.desires("a"))
	w.report("a", first["a"], w.desires("a"))
	w.during("commit", func() { w.report("c", first["c"], w.desires("c")) })
	w.report("b", first["b"], w.desires("b"))
	w.caughtUp()
	_, text := w.must(200, "POST", summarizeURL, "")
	failed := decoded[api.Summary](t, text).FailedVersions
	if len(failed) != 1 || failed[0].Nodes != 3 || !failed[0].Held ||
		failed[0].Versions.Kubernetes != "1.35.0" {
		t.Fatalf("failed: %s", text)
	}
	if got := w.upgrading("d", "1.35.0"); got != first["d"] {
		t.Errorf("%s is offered", got)
	}
	if got := w.upgrading("new", "1.35.0"); got != w.desires("new") {
		t.Error("a node that joins is not let through")
	}
	if got := w.names(filtered("state eq 'heldBack' and state ne 'failed'")); got != "d" {
		w.caughtUp()
		if got = w.names(filtered("state eq 'heldBack' and state ne 'failed'")); got != "d" {
			t.Errorf("held back: %s", got)
		}
	}
	url := cluster + "/allowVersions" + versionQuery
	_, text = w.must(409, "POST", url, `{"versions":{"kubernetes":"1.0.0"}}`)
	if code(text) != "VersionsNotFailed" {
		t.Error(text)
	}
	_, text = w.must(200, "POST", url, `{"versions":{"kubernetes":"1.35.0"}}`)
	if allowed := decoded[api.AllowedVersions](t, text).FailedVersions; allowed[0].Held ||
		allowed[0].AllowedBy != "ops@example.com" {
		t.Errorf("allowed: %s", text)
	}
	w.upgrading("e", "1.34.4")
	if got := w.upgrading("e", "1.35.0"); got != w.desires("e") {
		t.Error("what was allowed is not offered")
	}
}

// A node that is offered what others have failed meanwhile is taken back when it tells what it runs.
func TestNodeThatReportsLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	first := w.upgrading("n", "1.34.4")
	second := w.upgrading("n", "1.35.0")
	w.change(func(v *store.View) error {
		row, err := w.api.Store.Clusters.In(v, clusterKey)
		for i := range flexnode.FailedNodes {
			row.Value.Failures = row.Value.Failures.With(w.storedNode("n").Chosen.Versions,
				fmt.Sprint(i), w.clock.now())
		}
		return errors.Join(err, w.api.Store.Clusters.Put(v, clusterKey, row.Value))
	})
	if n := w.storedNode("n"); decimal(n.Assigned) != second {
		t.Fatalf("%d is offered", n.Assigned)
	}
	w.report("n", first, "")
	if n := w.storedNode("n"); decimal(n.Assigned) != first || decimal(n.Revision) != second {
		t.Errorf("%d is offered", n.Assigned)
	}
}
