package front

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const summarizeURL = cluster + "/summarizeFlexNodes" + versionQuery

// fleet makes nodes that are up to date, silent for an hour, failed, and never seen.
func (w *world) fleet() {
	w.t.Helper()
	w.register("")
	put := func(name, kubernetes string) string {
		body := strings.Replace(withPrincipal, "1.34.4", kubernetes, 1)
		body = strings.Replace(body, "prod", name, 1)
		return w.node(201, "PUT", nodeURL(name), body).Properties.ConfigVersion
	}
	report := func(name, body string) {
		w.must(204, "POST", nodeURL(name, "/reportStatus"), body)
		edit(w, w.api.Store.Status, clusterKey+"/"+name, func(s *flexnode.Status) {
			s.Ready = &api.Condition{Type: "Ready", Status: "True", Reason: "KubeletReady"}
		})
	}
	silent, fresh := put("a-silent", "1.34.4"), put("b-fresh", "1.35.0")
	report("a-silent", `{"appliedConfigVersion":"`+silent+`","agentVersion":"v1"}`)
	w.api.Seen.Note(clusterKey+"/a-silent", w.clock.Now())
	w.clock.Pass(time.Hour)
	report("b-fresh", `{"appliedConfigVersion":"`+fresh+`","components":{"kubelet":"1.35.0"}}`)
	w.api.Seen.Note(clusterKey+"/b-fresh", w.clock.Now())
	failed := put("c-failed", "1.35.0")
	report("c-failed", `{"appliedConfigVersion":"7","components":{"kubelet":"1.34.4"},
		"config":{"applied":"7","observed":"`+failed+`","failed":{"version":"`+failed+`",
			"reason":"NodeNotReady"}}}`)
	put("d-new", "1.34.4")
	w.caughtUp()
}

func TestSummarize(t *testing.T) {
	w := beside(t)
	w.fleet()
	_, text := w.must(200, "POST", summarizeURL, "{}")
	s := decoded[api.Summary](t, text)
	states := map[string]int{}
	for _, c := range append(s.States, s.ProvisioningStates...) {
		states[c.State] = c.Nodes
	}
	want := map[string]int{
		"joined": 3, "notJoined": 1, "ready": 3, "notReady": 0, "upToDate": 2, "outdated": 1,
		"failed": 1, "heldBack": states["heldBack"], "reporting": 1, "notReporting": 3,
		"drifted": 0, "Succeeded": 4, "Creating": 0, "Updating": 0, "Failed": 0,
	}
	equal(t, "the states", states, want)
	equal(t, "the nodes", s.Nodes, 4)
	versions := map[string][2]int{}
	for _, v := range s.Versions {
		versions[v.Component+" "+v.Version] = [2]int{v.Wanted, v.Running}
	}
	for name, want := range map[string][2]int{
		"kubernetes 1.34.4": {2, 1}, "kubernetes 1.35.0": {2, 1}, "agent v1": {0, 1},
	} {
		equal(t, name, versions[name], want)
	}
	has(t, "the conditions", text, `{"type":"UpToDate","status":"False","reason":"Failed","nodes":1}`)
	w.must(404, "POST", strings.Replace(summarizeURL, "Factory", "None", 1), "")
	w.must(400, "POST", summarizeURL, `{"x":1}`)
	w.api.Authorizer = Assignments{{PrincipalID: "operator", Scope: "/", Actions: []string{
		flexnode.ClusterType + "/read"}}}
	w.must(403, "POST", summarizeURL, "")
}

func filtered(filter string, more ...string) string {
	return nodesURL + "&$filter=" + url.QueryEscape(filter) + strings.Join(more, "")
}

func TestFilteredList(t *testing.T) {
	w := beside(t)
	w.fleet()
	for filter, want := range map[string]string{
		"":                  "a-silent b-fresh c-failed d-new",
		"state eq 'failed'": "c-failed",
		"state eq 'notReporting' and state eq 'joined'":                   "a-silent c-failed",
		"versions/kubernetes eq '1.35.0'":                                 "b-fresh c-failed",
		"components/kubernetes eq '1.34.4' and state ne 'upToDate'":       "c-failed",
		"conditions/Reporting eq 'True'":                                  "b-fresh",
		"conditions/UpToDate/reason eq 'Failed'":                          "c-failed",
		"labels['environment'] eq 'd-new'":                                "d-new",
		"labels['environment'] ne 'd-new' and conditions/Ready eq 'True'": "a-silent b-fresh c-failed",
		"provisioningState eq 'Failed'":                                   "",
	} {
		equal(t, filter, w.names(filtered(filter)), want)
		equal(t, filter+", one by one", w.names(filtered(filter, "&$top=1")), want)
	}
	w.refused(400, "InvalidParameter", "GET", filtered("name eq 'a'"), "", "$filter")
}

// Filters and summaries have all conditions that a GET shows, such as that of an old agent.
func TestAnOldAgentIsFound(t *testing.T) {
	w := beside(t)
	w.fleet()
	w.api.Renderer = "0.2.0"
	w.settles(204, "POST", nodeURL("d-new", "/reportStatus"), `{"agentVersion":"0.1.0"}`)
	_, text := w.must(200, "GET", nodeURL("d-new"), "")
	has(t, "the node", text, `"type":"AgentCurrent","status":"False"`)
	equal(t, "nodes", w.names(filtered("conditions/AgentCurrent eq 'False'")), "d-new")
	_, text = w.must(200, "POST", summarizeURL, "{}")
	has(t, "the summary", text,
		`{"type":"AgentCurrent","status":"False","reason":"AgentOlder","nodes":1}`)
}

// A row that cannot be read is left out of summaries and filtered lists; a list of all fails.
func TestAnUnreadableRowIsLeftOut(t *testing.T) {
	w := beside(t)
	w.fleet()
	s := w.api.Store
	must(s.Commit(t.Context(), nil, []store.Write{
		{Key: s.Status.Key(clusterKey + "/b-fresh"), Value: []byte("x")},
		{Key: s.Nodes.Key(clusterKey + "/d-new"), Value: []byte("x")},
	}))
	w.caughtUp()
	equal(t, "nodes in the summary", reads[api.Summary](w, 200, "POST", summarizeURL, "{}").Nodes, 2)
	equal(t, "found", w.names(filtered("provisioningState eq 'Succeeded'")), "a-silent c-failed")
	w.must(503, "GET", filtered(""), "")
	_, text := w.must(200, "GET", filtered("", "&$top=1"), "")
	has(t, "the first page", text, "a-silent")
}

// A stored report with a time of the year 10000 in UTC does not end the list of its cluster.
func TestAReportedTimeDoesNotEndTheList(t *testing.T) {
	w := beside(t)
	w.fleet()
	late := must(time.Parse(time.RFC3339, "9999-12-31T23:59:59-23:00"))
	edit(w, w.api.Store.Status, clusterKey+"/b-fresh", func(s *flexnode.Status) {
		s.Report.LastConfigApplied = &late
	})
	edit(w, w.api.Store.Status, clusterKey+"/c-failed", func(s *flexnode.Status) {
		s.Report.Config.Failed.At = &late
	})
	w.caughtUp()
	equal(t, "the nodes", w.names(filtered("")), "a-silent b-fresh c-failed d-new")
	equal(t, "a node", w.node(200, "GET", nodeURL("b-fresh"), "").Name, "b-fresh")
	equal(t, "the other", w.node(200, "GET", nodeURL("c-failed"), "").Name, "c-failed")
}

// names returns the names of the nodes on all pages.
func (w *world) names(url string) string {
	w.t.Helper()
	var names []string
	for pages := 0; url != ""; pages++ {
		page := reads[api.List[api.FlexNodeConfig]](w, 200, "GET", url, "")
		for _, n := range page.Value {
			names = append(names, n.Name)
		}
		if url = path(page.NextLink); pages > 10 {
			w.t.Fatal("pages without end")
		}
	}
	return strings.Join(names, " ")
}

// fill stores the nodes of a large cluster without the API.
func (w *world) fill(nodes int) {
	w.t.Helper()
	w.register("")
	for from := 0; from < nodes; from += store.MaxWrites / 2 {
		w.fillSome(from, min(nodes, from+store.MaxWrites/2))
	}
	must(0, w.index.Load(w.t.Context()))
}

func (w *world) fillSome(from, to int) {
	must(w.api.Store.Update(w.t.Context(), "fill", nil, func(v *store.View) error {
		for i := from; i < to; i++ {
			key, version := fmt.Sprintf("%s/n%06d", clusterKey, i), int64(1_800_000_000+i)
			n := flexnode.Node{
				ID:  cluster + "/flexNodeConfig/" + fmt.Sprintf("n%06d", i),
				UID: fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i), Revision: version,
				Assigned: version, Chosen: flexnode.Chosen{Versions: flexnode.Versions{
					Kubernetes: fmt.Sprintf("1.%d.4", 33+i%3), Containerd: "2.2.1",
				}},
				Desired: flexnode.Desired{ContinuousMonitoring: true, NodeConfig: flexnode.NodeConfig{
					Labels: map[string]string{"line": fmt.Sprint(i % 50)}}},
			}
			must(0, w.api.Store.Nodes.Set(v, key, n))
			ready := []string{"True", "True", "False"}[i%3]
			status := flexnode.Status{
				Ready: &api.Condition{Type: "Ready", Status: ready, Reason: "Kubelet"},
				Report: api.Report{
					AppliedConfigVersion: fmt.Sprint(version - int64(i%2)), AgentVersion: "v1",
					Conditions: []api.Condition{
						{Type: "Applied", Status: "True", Reason: "AsConfigured"},
						{Type: "KubeletRunning", Status: "True", Reason: "Running"},
					},
				},
			}
			must(0, w.api.Store.Status.Set(v, key, status))
		}
		return nil
	}))
}

// A page of a filtered list looks at a limited number of nodes, even without a match.
func TestPagesOfAFilterAreBounded(t *testing.T) {
	w := beside(t)
	const nodes = 2*maxLooked + 10
	w.fill(nodes)
	const filter = "labels['line'] eq 'none'"
	page := reads[api.List[api.FlexNodeConfig]](w, 200, "GET", filtered(filter), "")
	shows(t, "the first page, and whether there are more", "0 true", len(page.Value),
		page.NextLink != "")
	equal(t, "those of no line", w.names(filtered(filter)), "")
	got := strings.Fields(w.names(filtered("labels['line'] eq '7' and state eq 'outdated'")))
	equal(t, "the nodes of a line", len(got), (nodes-7+49)/50)
}
