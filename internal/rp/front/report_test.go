package front

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// told reports whether a status has a condition of a type that is True.
func told(s *api.Status, kind string) bool {
	return s != nil && slices.ContainsFunc(s.Conditions, func(c api.Condition) bool {
		return c.Type == kind && c.Status == "True"
	})
}

// fullReport is all that an agent can say, of a change that has failed.
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

// What an owner wants of changes is answered as he has written it.
func TestPoliciesAreShown(t *testing.T) {
	w := newEdge(t)
	_, text := w.must(201, "PUT", nodeURL("n"), withPolicies)
	d := shownNode(t, text).Properties.Desired
	if d.UpgradePolicy.MaintenanceWindow == nil || d.Monitoring.Interval != "PT30S" ||
		d.DriftPolicy != "repair" || d.DriftPolicies["unit"] != "off" ||
		d.UpgradePolicy.Deadline != "PT30M" || d.Network.Metadata != "allow" {
		t.Error(text)
	}
}

// What an agent reports is shown by GET, and, without what is long, in a list.
func TestReportIsShown(t *testing.T) {
	w := newEdge(t)
	version := w.node(201, "PUT", nodeURL("n"), withPrincipal).Properties.ConfigVersion
	w.must(204, "POST", nodeURL("n", "/reportStatus"), fullReport(version))
	w.caughtUp()
	_, text := w.must(200, "GET", nodeURL("n"), "")
	s := shownNode(t, text).Properties.Status
	if s.Config == nil || s.Config.Failed == nil || s.Config.Applied != "7" ||
		s.AppliedConfigVersion != "7" || s.Config.Failed.Log == "" || s.Drift == nil ||
		len(s.Drift.Items) != 2 || s.Components.Agent != "v1.2.0" || s.AgentVersion != "v1.2.0" ||
		!told(s, "KubeletRunning") || told(s, flexnode.UpToDate) {
		t.Errorf("%s", text)
	}
	_, text = w.must(200, "GET", cluster+"/flexNodeConfig"+versionQuery, "")
	page := decoded[api.List[api.FlexNodeConfig]](w.t, text)
	s = page.Value[0].Properties.Status
	if s.Config.Failed.Version != version || s.Config.Failed.Log != "" || s.Drift.Items != nil ||
		s.Drift.Count != 2 || told(s, flexnode.UpToDate) {
		t.Errorf("%s", text)
	}
}

// A report is bounded as a whole, whatever it is made of.
func TestReportIsBounded(t *testing.T) {
	w := newEdge(t)
	w.must(201, "PUT", nodeURL("n"), withToken)
	report := func(size int) string {
		const frame = `{"agentVersion":"1"%s}`
		return fmt.Sprintf(frame, strings.Repeat(" ", size-len(frame)+len("%s")))
	}
	w.must(204, "POST", nodeURL("n", "/reportStatus"), report(flexnode.MaxReport))
	w.refused(413, "RequestContentTooLarge", "POST", nodeURL("n", "/reportStatus"),
		report(flexnode.MaxReport+1), "8192")
	// A newer agent's report has one member more.
	w.must(204, "POST", nodeURL("n", "/reportStatus"), `{"other":{"x":1},"agentVersion":"9.0"}`)
	w.caughtUp()
	if _, text := w.must(200, "GET", nodeURL("n"), ""); !strings.Contains(text, `"agentVersion":"9.0"`) {
		t.Errorf("it shows %s", text)
	}
	w.must(400, "POST", nodeURL("n", "/reportStatus"), `{"drift":{"count":0,"items":[{"name":"a"}]}}`)
}

// An owner sees what has become of the URL that he has handed out.
func TestJoinIsShown(t *testing.T) {
	w := newEdge(t)
	join := func() string {
		if j := w.node(200, "GET", nodeURL("n"), "").Properties.Status.Join; j != nil {
			return j.State
		}
		return ""
	}
	w.must(201, "PUT", nodeURL("n"), withToken)
	if got := join(); got != "" {
		t.Errorf("nothing was issued: %s", got)
	}
	w.must(200, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	if got := join(); got != api.JoinReady {
		t.Errorf("a URL was issued: %s", got)
	}
	w.clock.Pass(25 * time.Hour)
	must(0, w.cluster.step(t.Context(), w.storedNode("n").Credential))
	w.until("its row is gone", func() bool { return w.storedNode("n").Credential == "" })
	if got := join(); got != api.JoinExpired {
		t.Errorf("after its end: %s", got)
	}
	w.must(200, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	if got := join(); got != api.JoinReady {
		t.Errorf("another URL was issued: %s", got)
	}
}
