package flexnode

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
	"unique"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// randomEvidence returns that of a node in any state.
func randomEvidence(g *rand.Rand) Evidence {
	now := time.Unix(1_800_000_000, 0)
	version := func() int64 { return pick[int64](g, 0, 1_799_999_998, 1_799_999_999, 1_800_000_000) }
	text := func() string {
		if v := version(); v != 0 {
			return strconv.FormatInt(v, 10)
		}
		return ""
	}
	e := Evidence{
		Now: now, Reachable: pick(g, true, false),
		Seen: pick(g, time.Time{}, now, now.Add(-time.Hour), now.Add(time.Hour)),
		Node: Node{
			ID: nodeID, State: pick(g, "", api.Creating, api.Updating, api.Failed),
			Revision: version(), Assigned: version(), Failed: version(), Credential: pick(g, "", "c/1"),
			Former: Former(pick(g, "", "app:x/y")), Reason: pick(g, "", "too new"),
			Desired: Desired{ContinuousMonitoring: pick(g, true, false)},
		},
	}
	if g.IntN(3) == 0 {
		e.Node.Ended = &JoinEnd{
			State:  pick(g, api.JoinExpired, api.JoinDenied, api.JoinConsumed),
			Reason: "why", Expires: now,
		}
	}
	if g.IntN(3) > 0 {
		e.Status.Ready = &api.Condition{
			Type: Ready, Status: pick(g, "True", "False", "Unknown"), LastTransitionTime: now,
			Reason: pick(g, "KubeletReady", NodeNotFound, ""), Message: "m",
		}
	}
	r := &e.Status.Report
	r.AppliedConfigVersion = text()
	if g.IntN(2) == 0 {
		r.Config = &api.Applied{Observed: text()}
		if failed := text(); failed != "" {
			r.Config.Failed = &api.FailedConfig{Version: failed, Reason: pick(g, "", "NotReady")}
		}
	}
	for _, kind := range []string{"Applied", CredentialValid, Joined, "KubeletRunning"} {
		if g.IntN(3) == 0 {
			r.Conditions = append(r.Conditions, api.Condition{
				Type: kind, Status: pick(g, "True", "False"), Reason: pick(g, "", "Because"),
				Message: "as the agent says",
			})
		}
	}
	return e
}

// The conditions of an outline are those of the node in a list, except for times and messages.
func TestOutlineHasTheConditions(t *testing.T) {
	g := generator(t)
	for range 5000 {
		e := randomEvidence(g)
		shown := Shown(e.Node, nil, nil, StatusOf(e)).Properties
		var want []api.Condition
		for _, c := range shown.Status.Conditions {
			want = append(want, api.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason})
		}
		applied, observed, failed := e.Status.Versions()
		class := Classes(e.Reachable, e.Provider)(Outline{
			Wanted: unique.Make(WantedOf(e.Node)), Said: unique.Make(SaidOf(e.Status)),
			Order: Ordered(e.Node, applied, observed, failed),
			Heard: HeardAt(e.Seen, e.Now),
		})
		if diff := cmp.Diff(want, class.Conditions); diff != "" {
			t.Fatalf("%+v: %s", e, diff)
		}
		if class.State != shown.ProvisioningState {
			t.Fatalf("state %s, want %s", class.State, shown.ProvisioningState)
		}
	}
}

func classOf(states ...string) *Class {
	return &Class{
		State: api.Succeeded, States: states, Versions: Versions{Kubernetes: "1.34.4"},
		Components: api.Components{Kubelet: "1.33.1", OS: "Ubuntu 24.04 'Noble'"},
		Conditions: []api.Condition{
			{Type: Ready, Status: "False", Reason: "KubeletNotReady"},
			{Type: UpToDate, Status: "True"},
		},
	}
}

func TestFilter(t *testing.T) {
	tests := map[string]bool{
		"":                                true,
		"  ":                              true,
		"state eq 'joined'":               true,
		"state ne 'joined'":               false,
		"state eq 'failed'":               false,
		"provisioningState eq 'Failed'":   false,
		"versions/kubernetes eq '1.34.4'": true,
		"versions/kubernetes eq '1.33.1'": false,
		"versions/runc eq ''":             true,
		"components/kubernetes eq '1.33.1' and versions/kubernetes ne '1.33.1'": true,
		"components/os eq 'Ubuntu 24.04 ''Noble'''":                             true,
		"conditions/Ready eq 'False'":                                           true,
		"conditions/Ready ne 'True' and conditions/UpToDate eq 'True'":          true,
		"conditions/Ready ne 'True' and conditions/UpToDate eq 'False'":         false,
		"conditions/Ready/reason eq 'KubeletNotReady'":                          true,
		"conditions/Unknown eq ''":                                              true,
		"conditions/Unknown eq 'True'":                                          false,
		"labels['a.b/c''d'] eq 'x'":                                             true,
		"labels['site'] ne 'x'":                                                 false,
		"labels['none'] eq ''":                                                  true,
		"state eq 'joined' and labels['site'] eq 'x'":                           true,
	}
	labels := map[string]string{"a.b/c'd": "x", "site": "x"}
	for text, want := range tests {
		f, problems := ReadFilter(text)
		if len(problems) > 0 {
			t.Errorf("%s: %v", text, problems)
			continue
		}
		if got := f.Chooses(classOf("joined")) && f.ChoosesLabels(labels); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestFilterIsRefused(t *testing.T) {
	for _, text := range []string{
		"state", "state eq", "state eq joined", "state eq 'joined", "state eq 'unheard-of'",
		"state gt 'joined'", "State eq 'joined'", "state/x eq 'joined'", "state EQ 'joined'",
		"provisioningState/x eq 'y'", "versions eq '1'", "versions/os eq '1'",
		"versions/kubernetes/x eq '1'", "components/ eq 'x'", "conditions eq 'True'",
		"conditions/ eq 'True'", "conditions/Ready/status eq 'True'", "conditions/Re-dy eq 'True'",
		"labels eq 'x'", "labels['] eq 'x'", "labels[''] eq 'x'", "labels['x' eq 'x'",
		"labels[x] eq 'x'", "name eq 'x'", "state eq 'joined' or state eq 'failed'",
		"state eq 'joined' and", "state eq 'joined' and ", "and state eq 'joined'",
		"state eq 'joined'and state eq 'failed'", "state eq 'joined' state eq 'failed'",
		"(state eq 'joined')", "not state eq 'joined'",
		"conditions/A eq '' and conditions/A eq '' and conditions/A eq '' and " +
			"conditions/A eq '' and conditions/A eq '' and conditions/A eq '' and " +
			"conditions/A eq '' and conditions/A eq '' and conditions/A eq ''",
		"labels['x'] eq '" + string(make([]byte, maxFilter)) + "'",
	} {
		if f, problems := ReadFilter(text); len(problems) == 0 {
			t.Errorf("%q is taken for %+v", text, f)
		}
	}
}

func TestSummary(t *testing.T) {
	got := Summary(map[*Class]int{classOf("joined", "failed"): 3, classOf("joined"): 4})
	want := []api.VersionCount{
		{Component: "kubernetes", Version: "1.33.1", Running: 7},
		{Component: "kubernetes", Version: "1.34.4", Wanted: 7},
		{Component: "os", Version: "Ubuntu 24.04 'Noble'", Running: 7},
	}
	expect(t, "the versions", got.Versions, want)
	if len(got.States) != len(states) || got.States[0] != (api.StateCount{State: "joined", Nodes: 7}) {
		t.Errorf("states: %+v", got.States)
	}
	if got.Nodes != 7 || len(got.Conditions) != 2 || got.Conditions[0].Nodes != 7 {
		t.Errorf("%+v", got)
	}
}

// Reports of agents cannot make a summary large: it has the most frequent values.
func TestSummaryIsBounded(t *testing.T) {
	counts := map[*Class]int{}
	for i := range 5 * maxSummarized {
		counts[&Class{
			Components: api.Components{OS: "os-" + strconv.Itoa(i)},
			Conditions: []api.Condition{{Type: "T", Status: "True", Reason: strconv.Itoa(i)}},
		}] = i
	}
	got := Summary(counts)
	if len(got.Versions) != maxSummarized || len(got.Conditions) != maxSummarized {
		t.Errorf("%d versions, %d conditions", len(got.Versions), len(got.Conditions))
	}
	for _, c := range got.Conditions {
		if c.Nodes < 4*maxSummarized {
			t.Errorf("%d nodes are among the most", c.Nodes)
		}
	}
}
