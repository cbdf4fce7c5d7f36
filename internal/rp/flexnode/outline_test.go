package flexnode

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

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
		expect(t, text, f.Chooses(classOf("joined"), labels), want)
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
	got := Summary(slices.Values(slices.Concat(
		slices.Repeat([]*Class{classOf("joined", "failed")}, 3),
		slices.Repeat([]*Class{classOf("joined")}, 4))))
	want := []api.VersionCount{
		{Component: "kubernetes", Version: "1.33.1", Running: 7},
		{Component: "kubernetes", Version: "1.34.4", Wanted: 7},
		{Component: "os", Version: "Ubuntu 24.04 'Noble'", Running: 7},
	}
	expect(t, "the versions", got.Versions, want)
	expect(t, "the number of states", len(got.States), len(states))
	expect(t, "the first one", got.States[0], api.StateCount{State: "joined", Nodes: 7})
	shows(t, "the nodes, and those with a condition", "7 2 7", got.Nodes, len(got.Conditions),
		got.Conditions[0].Nodes)
}

// Reports of agents cannot make a summary large: it has the most frequent values.
func TestSummaryIsBounded(t *testing.T) {
	var classes []*Class
	for i := range 5 * maxSummarized {
		classes = append(classes, slices.Repeat([]*Class{{
			Components: api.Components{OS: "os-" + strconv.Itoa(i)},
			Conditions: []api.Condition{{Type: "T", Status: "True", Reason: strconv.Itoa(i)}},
		}}, i)...)
	}
	got := Summary(slices.Values(classes))
	shows(t, "the versions and conditions", fmt.Sprint(maxSummarized, maxSummarized),
		len(got.Versions), len(got.Conditions))
	for _, c := range got.Conditions {
		expect(t, "few nodes are among the most", c.Nodes < 4*maxSummarized, false)
	}
}
