package front

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// asked returns the id and kind of the request in the answer to a poll.
func (m *machine) asked() string {
	m.w.t.Helper()
	m.w.caughtUp()
	r, _ := m.w.must(200, "GET", nodeURL(m.node), "", m.signs(machinekey.Request{}))
	return r.Header.Get(api.DiagnoseHeader)
}

// diagnose requests a diagnosis as the owner.
func (w *world) diagnose(kind string) api.Diagnosis {
	w.t.Helper()
	return reads[api.Diagnosis](w, 200, "POST", nodeURL("n", "/diagnose"), `{"kind":"`+kind+`"}`)
}

// answers reports a diagnosis as the machine, and returns the code of an error.
func (m *machine) answers(t *testing.T, status int, d api.Diagnosed) string {
	t.Helper()
	return m.post(t, status, "/reportDiagnosis", string(must(json.Marshal(d))))
}

// An owner requests a diagnosis, the next poll tells the machine, and its answer is kept for a day.
func TestDiagnose(t *testing.T) {
	w, m := enrolled(t)
	equal(t, "before a request it is asked for", m.asked(), "")
	w.must(409, "POST", nodeURL("n", "/listDiagnosis"), "")
	asked := w.diagnose("doctor")
	shows(t, "asked", "Requested ops@example.com", asked.State, asked.RequestedBy)
	has(t, "the audit log", w.audit.String(), "diagnose/action")
	equal(t, "it is asked for", m.asked(), asked.ID+" doctor")
	equal(t, "another answer", m.answers(t, 409, api.Diagnosed{ID: "another"}),
		"DiagnosisNotRequested")
	found := []api.Finding{{Type: "KubeletRunning", Verdict: "fault", Message: "it does not run"}}
	m.answers(t, 204, api.Diagnosed{ID: asked.ID, Findings: found})
	has(t, "the audit log", w.audit.String(), "reportDiagnosis/action")
	m.answers(t, 409, api.Diagnosed{ID: asked.ID})
	equal(t, "after its answer it is asked for", m.asked(), "")
	d := reads[api.Diagnosis](w, 200, "POST", nodeURL("n", "/listDiagnosis"), "")
	shows(t, "answered", "Completed 1 KubeletRunning true", d.State, len(d.Findings),
		d.Findings[0].Type, d.Completed != nil)
	w.clock.Pass(25 * time.Hour)
	w.must(409, "POST", nodeURL("n", "/listDiagnosis"), "")
	equal(t, "a day later it is asked for", m.asked(), "")
}

// A bundle is accepted up to its limit, a refusal with its reason; both are deleted with the node.
func TestDiagnoseBundle(t *testing.T) {
	w, m := enrolled(t)
	d := api.Diagnosed{ID: w.diagnose("supportBundle").ID}
	w.caughtUp()
	d.SupportBundle = make([]byte, flexnode.MaxBundle)
	m.answers(t, 204, d)
	got := reads[api.Diagnosis](w, 200, "POST", nodeURL("n", "/listDiagnosis"), "")
	equal(t, "the bytes of the bundle", len(got.SupportBundle), flexnode.MaxBundle)
	d = api.Diagnosed{ID: w.diagnose("supportBundle").ID, Refused: "there is no key"}
	m.answers(t, 204, d)
	got = reads[api.Diagnosis](w, 200, "POST", nodeURL("n", "/listDiagnosis"), "")
	shows(t, "refused", "Refused there is no key true", got.State, got.Message,
		got.SupportBundle == nil)
	for _, bad := range []api.Diagnosed{
		{SupportBundle: make([]byte, flexnode.MaxBundle+1)},
		{Findings: []api.Finding{{Type: "X", Message: "a\x1b[2J"}}},
		{Findings: []api.Finding{{Type: strings.Repeat("x", 5000)}}},
		{Findings: make([]api.Finding, 5000)},
	} {
		m.answers(t, 400, bad)
	}
	w.must(200, "DELETE", nodeURL("n"), "")
	w.must(201, "PUT", nodeURL("n"), "{}")
	w.must(409, "POST", nodeURL("n", "/listDiagnosis"), "")
}

// Invalid requests are refused: another kind, a key, a node that does not follow, too many.
func TestDiagnoseRefused(t *testing.T) {
	w := newEdge(t)
	w.must(404, "POST", nodeURL("n", "/diagnose"), `{"kind":"doctor"}`)
	w.must(404, "POST", nodeURL("n", "/listDiagnosis"), "")
	w.must(201, "PUT", nodeURL("n"), "{}")
	for _, body := range []string{`{"kind":"shell"}`, `{}`, `{"kind":"supportBundle","key":"age1x"}`} {
		w.must(400, "POST", nodeURL("n", "/diagnose"), body)
	}
	w.must(201, "PUT", nodeURL("alone"), `{"properties":{"continuousMonitoring":false}}`)
	w.refused(409, "NotFollowing", "POST", nodeURL("alone", "/diagnose"), `{"kind":"doctor"}`)
	for i := range flexnode.MaxDiagnoses {
		name := fmt.Sprintf("n%d", i)
		w.must(201, "PUT", nodeURL(name), "{}")
		w.must(200, "POST", nodeURL(name, "/diagnose"), `{"kind":"doctor"}`)
	}
	w.refused(409, "TooManyDiagnoses", "POST", nodeURL("n", "/diagnose"), `{"kind":"doctor"}`)
	w.must(200, "POST", nodeURL("n3", "/diagnose"), `{"kind":"doctor"}`)
	w.share(fair.Rates{fair.Subscription: {fair.Diagnoses: at(2, .01)}}, fair.AtOnce{})
	w.gets(400, "operator", "POST", nodeURL("n0", "/diagnose"), `{"kind":"x"}`)
	for i, want := range []int{200, 200, 429} {
		w.gets(want, "operator", "POST", nodeURL(fmt.Sprint("n", i), "/diagnose"), `{"kind":"doctor"}`)
	}
}

// told reports whether a status has a condition of a type that is True.
func told(s *api.Status, kind string) bool {
	return s != nil && slices.ContainsFunc(s.Conditions, func(c api.Condition) bool {
		return c.Type == kind && c.Status == "True"
	})
}

// fullReport returns a report with everything that an agent can report of a failed change.
func fullReport(version string) string {
	at := time.Date(2026, 11, 21, 10, 12, 40, 0, time.UTC)
	return string(must(json.Marshal(api.Report{
		LastConfigApplied: &at,
		Components: &api.Components{
			Kubelet: "1.34.4", Containerd: "2.2.7", Runc: "1.3.6", CNI: "1.9.1", NPD: "1.34.0",
			Agent: "v1.2.0", Kernel: "6.8.0-60-generic", OS: "Ubuntu 24.04.2 LTS",
		},
		Config: &api.Applied{
			Observed: version, Applied: "7",
			Failed: &api.FailedConfig{
				Version: version, Reason: "NodeNotReady", Message: "the Node was not Ready in 5m",
				Log: strings.Repeat("kubelet: cannot start\n", 40), At: &at,
			},
		},
		Drift: &api.Drift{
			Policy: "report", Count: 2, LastSeen: &at,
			Items: []api.DriftItem{{Name: "/etc/x", Message: "differs"}, {Name: "kubelet.service"}},
		},
		Conditions: []api.Condition{{Type: "KubeletRunning", Status: "True"}},
	})))
}

const withPolicies = `{"properties":{"driftPolicy":"repair","driftPolicies":{"unit":"off"},
	"upgradePolicy":{"drain":"always","deadline":"PT30M","readyTimeout":"PT5M",
		"maintenanceWindow":{"days":["Saturday"],"start":"02:00","duration":"PT4H",
			"utcOffset":"+01:00"}},
	"network":{"metadata":"allow"},
	"monitoring":{"endpoint":"https://rp.example:8447","interval":"PT30S"}}}`

// An agent's report is shown by GET and, without its long parts, in a list.
func TestReportIsShown(t *testing.T) {
	w := newEdge(t)
	version := w.node(201, "PUT", nodeURL("n"), withPrincipal).Properties.ConfigVersion
	w.settles(204, "POST", nodeURL("n", "/reportStatus"), fullReport(version))
	s := w.node(200, "GET", nodeURL("n"), "").Properties.Status
	shows(t, "the report", "7 7 true 2 v1.2.0 v1.2.0", s.Config.Applied, s.AppliedConfigVersion,
		s.Config.Failed.Log != "", len(s.Drift.Items), s.Components.Agent, s.AgentVersion)
	shows(t, "it runs, and is up to date", "true false", told(s, "KubeletRunning"),
		told(s, flexnode.UpToDate))
	page := reads[api.List[api.FlexNodeConfig]](w, 200, "GET", nodesURL, "")
	s = page.Value[0].Properties.Status
	shows(t, "in a list", version+" false false 2 false", s.Config.Failed.Version,
		s.Config.Failed.Log != "", s.Drift.Items != nil, s.Drift.Count, told(s, flexnode.UpToDate))
	w.must(200, "PUT", nodeURL("n"), withToken) // what it runs is not kept
}

// The size of a report is limited as a whole.
func TestReportIsBounded(t *testing.T) {
	w := newEdge(t)
	w.must(201, "PUT", nodeURL("n"), withToken)
	report := fmt.Sprintf("%-*s", flexnode.MaxReport, `{"agentVersion":"1"}`)
	w.must(204, "POST", nodeURL("n", "/reportStatus"), report)
	w.refused(413, "RequestContentTooLarge", "POST", nodeURL("n", "/reportStatus"), report+" ", "8192")
	// A newer agent's report has one member more.
	w.settles(204, "POST", nodeURL("n", "/reportStatus"), `{"other":{"x":1},"agentVersion":"9.0"}`)
	_, text := w.must(200, "GET", nodeURL("n"), "")
	has(t, "the node", text, `"agentVersion":"9.0"`)
	w.must(400, "POST", nodeURL("n", "/reportStatus"), `{"drift":{"count":0,"items":[{"name":"a"}]}}`)
}

// An owner sees what happened to the URL that he handed out.
func TestJoinIsShown(t *testing.T) {
	w := newEdge(t)
	join := func() string {
		if j := w.node(200, "GET", nodeURL("n"), "").Properties.Status.Join; j != nil {
			return j.State
		}
		return ""
	}
	w.must(201, "PUT", nodeURL("n"), withToken)
	equal(t, "nothing was issued", join(), "")
	w.must(200, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	equal(t, "a URL was issued", join(), api.JoinReady)
	w.clock.Pass(25 * time.Hour)
	w.until("its row is gone", func() bool { return w.storedNode("n").Credential == "" })
	equal(t, "after its end", join(), api.JoinExpired)
	w.must(200, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	equal(t, "another URL was issued", join(), api.JoinReady)
}
