package flexnode

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// targets returns the targets of problems.
func targets(problems Problems) string {
	var all []string
	for _, p := range problems {
		all = append(all, p.Target)
	}
	return strings.Join(all, " ")
}

func TestReportIsChecked(t *testing.T) {
	good := api.Condition{Type: "Applied", Status: "True"}
	item := api.DriftItem{Name: "/etc/x"}
	long := func(n int) string { return strings.Repeat("x", n+1) }
	told := func(all ...api.Condition) api.Report { return api.Report{Conditions: all} }
	failed := func(f api.FailedConfig) api.Report {
		return api.Report{Config: &api.Applied{Failed: &f}}
	}
	drift := func(d api.Drift) api.Report { return api.Report{Drift: &d} }
	var late, early time.Time // the years 10000 and 0 in UTC
	must(0, late.UnmarshalText([]byte("9999-12-31T23:59:59-23:00")))
	must(0, early.UnmarshalText([]byte("0001-01-01T00:00:00+23:00")))
	for want, r := range map[string]api.Report{
		"":                      {AppliedConfigVersion: "17", Conditions: []api.Condition{good}},
		"appliedConfigVersion":  {AppliedConfigVersion: "x"},
		"agentVersion":          {AgentVersion: long(maxVersion)},
		"conditions":            told(slices.Repeat([]api.Condition{good}, maxConditions+1)...),
		"conditions[0].type":    told(api.Condition{Type: "a b", Status: "True"}),
		"conditions[0].status":  told(api.Condition{Type: "A", Status: "Maybe not"}),
		"conditions[0].message": told(api.Condition{Type: "A", Status: "True", Message: long(maxText)}),
		"conditions[0].message conditions[1].reason": told(
			api.Condition{Type: "A", Status: "True", Message: "x\x1b[2J"},
			api.Condition{Type: "B", Status: "True", Reason: "two words"}),
		"conditions[0].lastTransitionTime": told(
			api.Condition{Type: "A", Status: "True", LastTransitionTime: early}),
		"components.os":              {Components: &api.Components{OS: "\u202exunil"}},
		"components.kernel":          {Components: &api.Components{Kernel: long(maxVersion)}},
		"config.observed":            {Config: &api.Applied{Observed: "new"}},
		"config.failed.version":      failed(api.FailedConfig{Reason: "NodeNotReady"}),
		"config.failed.log":          failed(api.FailedConfig{Version: "7", Log: long(maxLog)}),
		"config.failed.at":           failed(api.FailedConfig{Version: "7", At: &early}),
		"lastConfigApplied":          {LastConfigApplied: &late},
		"drift.lastSeen drift.count": drift(api.Drift{Count: math.MaxInt32 + 1, LastSeen: &late}),
		"drift.policy":               drift(api.Drift{Policy: long(maxVersion)}),
		"drift.count":                drift(api.Drift{Count: 1, Items: []api.DriftItem{item, item}}),
		"drift.items[0].name":        drift(api.Drift{Count: 1, Items: []api.DriftItem{{}}}),
		"drift.items": drift(api.Drift{
			Count: maxItems + 1, Items: slices.Repeat([]api.DriftItem{item}, maxItems+1)}),
		"config.applied":   {AppliedConfigVersion: "7", Config: &api.Applied{Applied: "8"}},
		"components.agent": {AgentVersion: "1.0", Components: &api.Components{Agent: "1.1"}},
	} {
		_, err := ReadReport(encode(r))
		problems, _ := errors.AsType[Problems](err)
		expect(t, "problems", targets(problems), want)
		expect(t, want+" is an error", err != nil, want != "")
	}
	newer := must(ReadReport([]byte(`{"component":{},"drift":{"policy":"ask","items":[{"name":"x",` +
		`"since":1}],"count":1},"conditions":[{"type":"A","status":"Maybe","code":7}]}`)))
	shows(t, "a report of a newer agent", "ask Maybe", newer.Drift.Policy, newer.Conditions[0].Status)
	_, err := ReadReport([]byte(`{"agentVersion":"1","agentVersion":"2"}`))
	expect(t, "a name that is given twice was taken", err == nil, false)
}

// A value at a newer place equals the one at the older place: stored once, and shown at both.
func TestReportSaysTheSameInTwoPlaces(t *testing.T) {
	newer := `{"config":{"observed":"9","applied":"8"},"components":{"agent":"1.2","runc":"1.3.4"}}`
	older := `{"appliedConfigVersion":"8","agentVersion":"1.2","config":{"observed":"9"},` +
		`"components":{"runc":"1.3.4"}}`
	both := `{"appliedConfigVersion":"8","agentVersion":"1.2",` +
		`"config":{"observed":"9","applied":"8"},"components":{"agent":"1.2","runc":"1.3.4"}}`
	want := must(ReadReport([]byte(older)))
	for _, text := range []string{newer, both} {
		expect(t, text, must(ReadReport([]byte(text))), want)
	}
	shown := StatusOf(Evidence{Status: Status{Report: want}, Now: time.Unix(1, 0)})
	shows(t, "what is shown", "8 8 9 1.2 1.2 1.3.4", shown.AppliedConfigVersion, shown.Config.Applied,
		shown.Config.Observed, shown.AgentVersion, shown.Components.Agent, shown.Components.Runc)
	empty := must(ReadReport([]byte(`{"config":{},"components":{}}`)))
	expect(t, "an empty one", empty, api.Report{})
}
