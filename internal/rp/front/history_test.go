package front

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// putPods replaces a node, and returns its version.
func (w *world) putPods(status, pods int, more string) string {
	w.t.Helper()
	w.clock.Pass(time.Minute)
	body := fmt.Sprintf(`{"properties":{"nodeConfig":{"maxPods":%d}%s}}`, pods, more)
	return w.node(status, "PUT", nodeURL("n"), body).Properties.ConfigVersion
}

// revisions returns the kept revisions of the node n.
func (w *world) revisions() []api.Revision {
	w.t.Helper()
	return reads[api.History](w, 200, "POST", nodeURL("n", "/listHistory"), "").Revisions
}

func TestHistoryDiffRollback(t *testing.T) {
	w := newEdge(t)
	first := w.putPods(201, 30, "")
	second := w.putPods(200, 50, `,"versions":{"kubernetes":"1.34.4"}`)
	w.must(204, "POST", nodeURL("n", "/reportStatus"), `{"appliedConfigVersion":"`+first+`"}`)

	history := w.revisions()
	want := []api.Revision{
		{ConfigVersion: second, Reason: "put", Desired: true, Assigned: true,
			Changed: []string{"kubernetes.version", "node.maxPods"}, ChangeCount: 2},
		{ConfigVersion: first, Reason: "put", Applied: true},
	}
	for i := range want {
		want[i].Created, want[i].CreatedBy = history[i].Created, "ops@example.com"
	}
	equal(t, "the history", history, want)

	_, text := w.must(200, "POST", nodeURL("n", "/diff"), "{}")
	d := decoded[api.Diff](t, text)
	if d.From != first || d.To != second || len(d.Changes) != 2 ||
		d.Changes[1].Path != "node.maxPods" || *d.Changes[1].From != "30" ||
		*d.Changes[1].To != "50" || d.Changes[1].Disruption != config.Restart ||
		d.Disruption != d.Changes[0].Disruption {
		t.Errorf("diff: %s", text)
	}
	_, text = w.must(200, "POST", nodeURL("n", "/diff"), `{"from":"`+second+`","to":"`+first+`"}`)
	equal(t, "the other way", *decoded[api.Diff](t, text).Changes[1].To, "30")

	r, text := w.must(200, "POST", nodeURL("n", "/rollback"), `{"configVersion":"`+first+`"}`)
	n := shownNode(t, text)
	if n.Properties.ConfigVersion <= second || n.Properties.NodeConfig.MaxPods != 30 ||
		n.Properties.Versions.Kubernetes != "" || r.Header.Get("ETag") != n.ETag {
		t.Errorf("rolled back: %s", text)
	}
	_, text = w.must(200, "GET", nodeURL("n"), "")
	if got := shownNode(t, text); got.ETag != n.ETag ||
		!cmp.Equal(got.Properties.Config, n.Properties.Config) {
		t.Errorf("GET shows something else: %s", text)
	}
	before := w.revision()
	w.must(200, "PUT", nodeURL("n"), text)
	w.must(200, "POST", nodeURL("n", "/rollback"), `{"configVersion":"`+first+`"}`)
	equal(t, "the revision after what is so already", w.revision(), before)
	if newest := w.revisions()[0]; newest.Reason != "rollback" || newest.Repeats != first ||
		!newest.Desired {
		t.Errorf("history: %+v", newest)
	}
}

// Ten revisions are kept; older ones can be neither compared nor rolled back to.
func TestHistoryEnds(t *testing.T) {
	w := newEdge(t)
	first := w.putPods(201, 30, "")
	for i := range 12 {
		w.putPods(200, 31+i, "")
	}
	all := w.revisions()
	older := func(a, b api.Revision) int { return strings.Compare(b.ConfigVersion, a.ConfigVersion) }
	if len(all) != 10 || !slices.IsSortedFunc(all, older) {
		t.Errorf("history: %+v", all)
	}
	for _, test := range []struct {
		action, body, code string
		status             int
	}{
		{"rollback", `{"configVersion":"` + first + `"}`, "RevisionNotKept", 409},
		{"rollback", `{"configVersion":"7.5"}`, "InvalidParameter", 400},
		{"rollback", `{"configVersion":"-1"}`, "InvalidParameter", 400},
		{"rollback", `{}`, "InvalidParameter", 400},
		{"rollback", ``, "InvalidRequestContent", 400},
		{"rollback", `{"to":"1"}`, "InvalidRequestContent", 400},
		{"diff", `{"from":"` + first + `"}`, "RevisionNotKept", 409},
		{"diff", `{"to":"x"}`, "InvalidParameter", 400},
		{"listHistory", `{"x":1}`, "InvalidRequestContent", 400},
	} {
		w.refused(test.status, test.code, "POST", nodeURL("n", "/"+test.action), test.body)
	}
	for action, body := range map[string]string{
		"rollback": `{"configVersion":"1"}`, "diff": "", "listHistory": "",
	} {
		w.must(404, "POST", nodeURL("none", "/"+action), body)
	}
}

// A rollback revokes the credentials to join with, restores the node's identity and secret, and
// tells what to do if the secret is gone.
func TestRollbackAndCredentials(t *testing.T) {
	w := newEdge(t)
	first := w.node(201, "PUT", nodeURL("n"), withPrincipal).Properties.ConfigVersion
	more := strings.Replace(withoutSecret, "prod", "test", 1)
	n := w.node(200, "PUT", nodeURL("n")+"&configUrl=true", more)
	body := `{"configVersion":"` + first + `"}`
	w.must(412, "POST", nodeURL("n", "/rollback"), body, `If-Match: "1"`)
	r, text := w.must(200, "POST", nodeURL("n", "/rollback"), body, "If-Match: "+n.ETag)
	lacks(t, "the answer", text, "hush")
	w.must(403, "GET", path(n.Properties.ConfigURL), "")
	w.must(412, "POST", nodeURL("n", "/rollback"), body, `If-Match: "0-`+r.Header.Get("ETag")[1:])

	another := strings.Replace(withPrincipal, "hush-hush", "other", 1)
	w.must(200, "PUT", nodeURL("n"), another)
	w.refused(409, "SecretNotKept", "POST", nodeURL("n", "/rollback"), body, principal)
	w.must(200, "PUT", nodeURL("n"), withToken)
	equal(t, "the secret is kept",
		must(w.api.Store.Secrets.Get(t.Context(), clusterKey+"/n")).Exists(), false)
	if n := w.storedNode("n"); n.Identity != "" || len(n.Former.All()) != 1 {
		t.Errorf("identity %q, former %q", n.Identity, n.Former)
	}
	_, text = w.must(200, "POST", nodeURL("n", "/listHistory"), "")
	lacks(t, "the history", text, "hush", "other")
}

// After a concurrent rollback and PUT the later one holds, and both are in the history.
func TestRollbackDuringAPut(t *testing.T) {
	w := newEdge(t)
	first := w.putPods(201, 30, "")
	w.putPods(200, 40, "")
	w.during("commit", func() { w.putPods(200, 50, "") })
	n := w.node(200, "POST", nodeURL("n", "/rollback"), `{"configVersion":"`+first+`"}`)
	equal(t, "the maximum of pods", n.Properties.NodeConfig.MaxPods, 30)
	equal(t, "the revisions", len(w.revisions()), 4)
}

// Each of the actions needs its own permission.
func TestPermissionsOfActions(t *testing.T) {
	w := newEdge(t)
	version := w.putPods(201, 30, "")
	for _, action := range []string{"listHistory", "diff", "rollback", "listConfigUrl"} {
		w.api.Authorizer = Assignments{{PrincipalID: "operator", Scope: "/", Actions: []string{
			api.ResourceType + "/" + action + "/action"}}}
		for _, other := range []string{"listHistory", "diff", "rollback", "listConfigUrl"} {
			body, want := "{}", 403
			if other == "rollback" {
				body = `{"configVersion":"` + version + `"}`
			}
			if other == action {
				want = 200
			}
			w.must(want, "POST", nodeURL("n", "/"+other), body)
		}
	}
}

// listConfigUrl makes one URL for a node whose URLs no machine has used, and none for others.
func TestListConfigURLProvisions(t *testing.T) {
	w := newEdge(t)
	w.must(201, "PUT", nodeURL("n"), withToken)
	ask := func(status int) api.ConfigURL {
		t.Helper()
		return reads[api.ConfigURL](w, status, "POST", nodeURL("n", "/listConfigUrl"), "{}")
	}
	first := ask(200)
	w.must(200, "GET", path(first.ConfigURL), "")
	equal(t, "asked again", ask(200), first)
	// A change revokes it; no machine has used it, so there is another.
	w.must(200, "PUT", nodeURL("n"), strings.Replace(withToken, "prod", "test", 1))
	second := ask(200)
	equal(t, "the URL is one that was revoked", second.ConfigURL == first.ConfigURL, false)
	// It has expired; no machine has used it.
	w.clock.Pass(25 * time.Hour)
	w.until("it is gone", func() bool { return w.storedNode("n").Credential == "" })
	third := ask(200)
	w.must(200, "GET", path(third.ConfigURL), "")
	w.use("n")
	w.refused(409, "NoConfigUrl", "POST", nodeURL("n", "/listConfigUrl"), "{}", "regenerateToken")
	// Not after a change either, nor when all that is left of the credential is the mark.
	w.must(200, "PUT", nodeURL("n"), withToken)
	w.must(409, "POST", nodeURL("n", "/listConfigUrl"), "{}")
	w.must(200, "POST", nodeURL("n", "/regenerateToken"), "{}")
	ask(200)
}

// A node from before the mark, with a status, has a machine.
func TestListConfigURLOfANodeThatRuns(t *testing.T) {
	w := newEdge(t)
	w.must(201, "PUT", nodeURL("n"), withPrincipal)
	w.must(204, "POST", nodeURL("n", "/reportStatus"), `{"agentVersion":"v1"}`)
	w.must(409, "POST", nodeURL("n", "/listConfigUrl"), "{}")
}

// Two concurrent callers get the same URL.
func TestListConfigURLTwice(t *testing.T) {
	w := newEdge(t)
	w.must(201, "PUT", nodeURL("n"), withToken)
	var inner string
	w.during("commit", func() { _, inner = w.must(200, "POST", nodeURL("n", "/listConfigUrl"), "") })
	_, outer := w.must(200, "POST", nodeURL("n", "/listConfigUrl"), "")
	equal(t, "the inner answer", inner, outer)
}

// use uses the live credential of a node, like a machine.
func (w *world) use(name string) {
	w.t.Helper()
	n := w.storedNode(name)
	c := must(w.api.Store.Credentials.Get(w.t.Context(), n.Credential))
	a := credential.Application{TokenID: c.Value.TokenID, Node: "n", KeyHash: "key", Name: "csr"}
	must(0, w.api.Credentials.Consume(w.t.Context(), n.Credential, a, store.Condition{}))
}
