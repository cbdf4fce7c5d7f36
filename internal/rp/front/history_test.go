package front

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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

	d := reads[api.Diff](w, 200, "POST", nodeURL("n", "/diff"), "{}")
	pods := d.Changes[1]
	shows(t, "the diff", first+" "+second+" 2", d.From, d.To, len(d.Changes))
	shows(t, "its second change", fmt.Sprint("node.maxPods 30 50 ", config.Restart), pods.Path,
		*pods.From, *pods.To, pods.Disruption)
	equal(t, "its disruption", d.Disruption, d.Changes[0].Disruption)
	back := `{"from":"` + second + `","to":"` + first + `"}`
	d = reads[api.Diff](w, 200, "POST", nodeURL("n", "/diff"), back)
	equal(t, "the other way", *d.Changes[1].To, "30")

	r, text := w.must(200, "POST", nodeURL("n", "/rollback"), versionOf(first))
	n := shownNode(t, text)
	shows(t, "rolled back", "true 30 true "+n.ETag, n.Properties.ConfigVersion > second,
		n.Properties.NodeConfig.MaxPods, n.Properties.Versions.Kubernetes == "", r.Header.Get("ETag"))
	_, text = w.must(200, "GET", nodeURL("n"), "")
	got := shownNode(t, text)
	equal(t, "the ETag of a GET", got.ETag, n.ETag)
	equal(t, "the configuration of a GET", got.Properties.Config, n.Properties.Config)
	before := w.revision()
	w.must(200, "PUT", nodeURL("n"), text)
	w.must(200, "POST", nodeURL("n", "/rollback"), versionOf(first))
	equal(t, "the revision after what is so already", w.revision(), before)
	newest := w.revisions()[0]
	shows(t, "the history", "rollback "+first+" true", newest.Reason, newest.Repeats, newest.Desired)
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
	shows(t, "the history, in its order", "10 true", len(all), slices.IsSortedFunc(all, older))
	for _, test := range []struct {
		action, body, code string
		status             int
	}{
		{"rollback", versionOf(first), "RevisionNotKept", 409},
		{"rollback", versionOf("7.5"), "InvalidParameter", 400},
		{"rollback", versionOf("-1"), "InvalidParameter", 400},
		{"rollback", `{}`, "InvalidParameter", 400},
		{"rollback", ``, "InvalidRequestContent", 400},
		{"rollback", `{"to":"1"}`, "InvalidRequestContent", 400},
		{"diff", `{"from":"` + first + `"}`, "RevisionNotKept", 409},
		{"diff", `{"to":"x"}`, "InvalidParameter", 400},
		{"listHistory", `{"x":1}`, "InvalidRequestContent", 400},
	} {
		w.refused(test.status, test.code, "POST", nodeURL("n", "/"+test.action), test.body)
	}
	w.must(404, "POST", nodeURL("none", "/rollback"), versionOf("1"))
	w.must(404, "POST", nodeURL("none", "/diff"), "")
	w.must(404, "POST", nodeURL("none", "/listHistory"), "")
}

// A rollback revokes the credentials to join with, restores the node's identity and secret, and
// tells what to do if the secret is gone.
func TestRollbackAndCredentials(t *testing.T) {
	w := newEdge(t)
	first := w.node(201, "PUT", nodeURL("n"), withPrincipal).Properties.ConfigVersion
	more := strings.Replace(withoutSecret, "prod", "test", 1)
	n := w.node(200, "PUT", nodeURL("n")+"&configUrl=true", more)
	rollback, body := nodeURL("n", "/rollback"), versionOf(first)
	w.must(412, "POST", rollback, body, `If-Match: "1"`)
	r, text := w.must(200, "POST", rollback, body, "If-Match: "+n.ETag)
	lacks(t, "the answer", text, "hush")
	w.must(403, "GET", path(n.Properties.ConfigURL), "")
	w.must(412, "POST", rollback, body, `If-Match: "0-`+r.Header.Get("ETag")[1:])

	another := strings.Replace(withPrincipal, "hush-hush", "other", 1)
	w.must(200, "PUT", nodeURL("n"), another)
	w.refused(409, "SecretNotKept", "POST", rollback, body, principal)
	w.must(200, "PUT", nodeURL("n"), withToken)
	kept, stored := must(w.api.Store.Secrets.Get(t.Context(), clusterKey+"/n")), w.storedNode("n")
	equal(t, "the secret is kept", kept.Exists(), false)
	shows(t, "no identity, and one before", "true 1", stored.Identity == "", len(stored.Former.All()))
	_, text = w.must(200, "POST", nodeURL("n", "/listHistory"), "")
	lacks(t, "the history", text, "hush", "other")
}

// After a concurrent rollback and PUT the later one holds, and both are in the history.
func TestRollbackDuringAPut(t *testing.T) {
	w := newEdge(t)
	first := w.putPods(201, 30, "")
	w.putPods(200, 40, "")
	w.during("commit", func() { w.putPods(200, 50, "") })
	n := w.node(200, "POST", nodeURL("n", "/rollback"), versionOf(first))
	equal(t, "the maximum of pods", n.Properties.NodeConfig.MaxPods, 30)
	equal(t, "the revisions", len(w.revisions()), 4)
}

// Each of the actions needs its own permission.
func TestPermissionsOfActions(t *testing.T) {
	w := newEdge(t)
	version := w.putPods(201, 30, "")
	bodies := map[string]string{
		"listHistory": "{}", "diff": "{}", "rollback": versionOf(version), "listConfigUrl": "{}"}
	for action := range bodies {
		w.api.Authorizer = Assignments{{PrincipalID: "operator", Scope: "/", Actions: []string{
			api.ResourceType + "/" + action + "/action"}}}
		for other, body := range bodies {
			want := map[bool]int{true: 200, false: 403}[other == action]
			w.must(want, "POST", nodeURL("n", "/"+other), body)
		}
	}
}

// listConfigUrl makes one URL for a node whose URLs no machine has used, and none for others.
func TestListConfigURLProvisions(t *testing.T) {
	w := newEdge(t)
	w.must(201, "PUT", nodeURL("n"), withToken)
	list := nodeURL("n", "/listConfigUrl")
	ask := func() api.ConfigURL { return reads[api.ConfigURL](w, 200, "POST", list, "{}") }
	first := ask()
	w.must(200, "GET", path(first.ConfigURL), "")
	equal(t, "asked again", ask(), first)
	// A change revokes it; no machine has used it, so there is another.
	w.must(200, "PUT", nodeURL("n"), strings.Replace(withToken, "prod", "test", 1))
	equal(t, "the URL is one that was revoked", ask().ConfigURL == first.ConfigURL, false)
	// It has expired; no machine has used it.
	w.clock.Pass(25 * time.Hour)
	w.until("it is gone", func() bool { return w.storedNode("n").Credential == "" })
	w.must(200, "GET", path(ask().ConfigURL), "")
	w.use("n")
	w.refused(409, "NoConfigUrl", "POST", list, "{}", "regenerateToken")
	// Not after a change either, nor when all that is left of the credential is the mark.
	w.must(200, "PUT", nodeURL("n"), withToken)
	w.must(409, "POST", list, "{}")
	w.must(200, "POST", nodeURL("n", "/regenerateToken"), "{}")
	ask()
	// A node from before the mark, with a status, has a machine.
	w.must(201, "PUT", nodeURL("o"), withPrincipal)
	w.must(204, "POST", nodeURL("o", "/reportStatus"), `{"agentVersion":"v1"}`)
	w.must(409, "POST", nodeURL("o", "/listConfigUrl"), "{}")
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
	key := w.storedNode(name).Credential
	c := must(w.api.Store.Credentials.Get(w.t.Context(), key))
	a := credential.Application{TokenID: c.Value.TokenID, Node: "n", KeyHash: "key", Name: "csr"}
	must(0, w.api.Credentials.Consume(w.t.Context(), key, a, store.Condition{}))
}
