// Package monitoring holds alert rules and dashboards for Prometheus and Grafana. Its tests run
// promtool and compare them with the documentation.
package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// promtool runs promtool; the test is skipped where it is not installed.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("there is no promtool here (it is in Debian's package prometheus)")
	}
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

type rule struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}

func rules(t *testing.T, file string) (list []rule) {
	t.Helper()
	var read struct{ Groups []struct{ Rules []rule } }
	load(t, file, &read)
	for _, g := range read.Groups {
		list = append(list, g.Rules...)
	}
	return list
}

func load(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("cannot read %s: %v", file, err)
	}
}

// The rules are well-formed, and each alert fires when it should and not just short of that.
func TestRules(t *testing.T) {
	promtool(t, "check", "rules", "--lint=all", "agent.rules.yaml", "provider.rules.yaml")
	promtool(t, "test", "rules", "agent.test.yaml", "provider.test.yaml")
}

// Each alert has both tests, a severity, and a section in the documentation that says what to do.
func TestAlertsAreComplete(t *testing.T) {
	runbook, err := os.ReadFile("../../docs/reference/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"agent", "provider"} {
		var read struct{ Tests []struct{ Name string } }
		load(t, of+".test.yaml", &read)
		tested := map[string]bool{}
		for _, test := range read.Tests {
			tested[test.Name] = true
		}
		for _, r := range rules(t, of+".rules.yaml") {
			if !tested[r.Alert+" fires"] || !tested[r.Alert+" just does not fire"] {
				t.Errorf("%s is not tested both ways", r.Alert)
			}
			if !regexp.MustCompile("^(critical|warning|info)$").MatchString(r.Labels["severity"]) {
				t.Errorf("%s has severity %q", r.Alert, r.Labels["severity"])
			}
			if !strings.Contains(string(runbook), "\n### "+r.Alert+"\n") ||
				!strings.HasSuffix(r.Annotations["runbook_url"],
					"/docs/reference/alerts.md#"+strings.ToLower(r.Alert)) {
				t.Errorf("%s has no section in docs/reference/alerts.md, or another link", r.Alert)
			}
		}
	}
}

// panel is a dashboard's panel with its queries.
type panel struct {
	Title, Description, Type string
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct{ Expr string }
}

func panels(t *testing.T, file string) []panel {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		UID    string
		Panels []panel
	}
	if err := json.Unmarshal(data, &read); err != nil || read.UID == "" {
		t.Fatalf("%s: uid %q: %v", file, read.UID, err)
	}
	return read.Panels
}

// Every expression of the dashboards parses, and every panel has a description.
func TestDashboards(t *testing.T) {
	var text strings.Builder
	text.WriteString("groups:\n- name: dashboards\n  rules:\n")
	for _, file := range []string{"agent.dashboard.json", "provider.dashboard.json"} {
		for _, p := range panels(t, file) {
			if p.Type == "row" {
				continue
			}
			if p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
				t.Errorf("%s: %q lacks description, unit or expression", file, p.Title)
			}
			for _, target := range p.Targets {
				expr := strings.NewReplacer("$__rate_interval", "5m", "$job", ".+").
					Replace(target.Expr)
				fmt.Fprintf(&text, "  - {record: 'panel:%x', expr: %q}\n", text.Len(), expr)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "panels.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", "--lint=none", file)
}

// Rules and dashboards of machines use only documented metrics of agents, with their labels.
func TestAgentMetricsExist(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `(aks_flex_node_[a-z_]+)` \\|([^|]*)\\|")
	known := map[string]string{}
	for _, found := range row.FindAllStringSubmatch(string(text), -1) {
		known[found[1]] = found[2]
	}
	if len(known) == 0 {
		t.Skip("docs/reference/metrics.md has no metrics of agents")
	}
	var asked []string
	for _, r := range rules(t, "agent.rules.yaml") {
		asked = append(asked, r.Expr)
	}
	for _, p := range panels(t, "agent.dashboard.json") {
		for _, target := range p.Targets {
			asked = append(asked, target.Expr)
		}
	}
	selector := regexp.MustCompile(`(aks_flex_node_[a-z_]+?)(?:_sum|_count)?(?:\{([^}]*)\})?[^a-z_{]`)
	label := regexp.MustCompile(`([a-z]+)(?:=|!)`)
	for _, expr := range asked {
		for _, found := range selector.FindAllStringSubmatch(expr+" ", -1) {
			labels, ok := known[found[1]]
			if !ok {
				t.Errorf("agents do not tell %s, which is asked for: %s", found[1], expr)
			}
			for _, l := range label.FindAllStringSubmatch(found[2], -1) {
				if l[1] != "job" && !strings.Contains(labels, "`"+l[1]+"`") {
					t.Errorf("%s has no label %s: %s", found[1], l[1], expr)
				}
			}
		}
	}
}
