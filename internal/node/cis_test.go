package node

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/node/cistest"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// scanned is a node as a scanner sees it on its machine: kubelet has written its kubeconfig.
func scanned(c config.Config, f Facts) cistest.Machine {
	kubeconfig := KubeconfigPath(c.Paths.Kubernetes.KubeletDir)
	files := map[string]cistest.File{kubeconfig: {Mode: 0o600}}
	var unit string
	b := bindings()
	joined(&b)
	for _, item := range Bind(Render(c, f), b) {
		if file, ok := item.Resource.(state.File); ok {
			files[file.Path] = cistest.File{
				Mode: file.Mode, UID: file.UID, GID: file.GID, Content: file.Content,
			}
			if strings.HasSuffix(file.Path, "/"+KubeletUnit) {
				unit = file.Content
			}
		}
	}
	return cistest.Machine{Kubelet: unit, File: func(path string) (cistest.File, bool) {
		file, ok := files[path]
		return file, ok
	}}
}

// TestCIS measures a new node by the CIS Kubernetes Benchmark. What warns is in
// docs/explanation/security.md.
func TestCIS(t *testing.T) {
	_, c := bundle(t, "../../api/flexnode/v20260501preview/testdata/token.json")
	f := facts()
	f.HostName = strings.ToUpper(c.Agent.NodeName)
	f.StaticName = c.Agent.NodeName
	results, err := cistest.Evaluate(scanned(c, f))
	if err != nil {
		t.Fatal(err)
	}
	t.Log(cistest.Summary(results))
	other := map[string]cistest.Verdict{}
	for _, r := range results {
		if r.Verdict != cistest.Pass {
			other[r.ID] = r.Verdict
		}
	}
	want := map[string]cistest.Verdict{
		"4.1.3": cistest.Warn, "4.1.4": cistest.Warn, "4.2.9": cistest.Warn,
	}
	if diff := cmp.Diff(want, other); diff != "" {
		t.Errorf("what does not pass (-want +got):\n%s", diff)
	}
}

// The benchmark finds what is wrong: a node with other settings, and one of another name.
func TestCISFinds(t *testing.T) {
	c, f := base(), facts()
	f.HostName = "another"
	m := scanned(c, f)
	file := m.File
	m.File = func(path string) (cistest.File, bool) {
		got, ok := file(path)
		if path == "/var/lib/kubelet/config.yaml" {
			got.Mode, got.UID = 0o644, 1000
			got.Content = strings.ReplaceAll(got.Content, `"Webhook"`, `"AlwaysAllow"`)
		}
		return got, ok
	}
	results, err := cistest.Evaluate(m)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, r := range results {
		found[r.ID] = r.Verdict != cistest.Pass
	}
	for _, id := range []string{"4.1.9", "4.1.10", "4.2.2", "4.2.7", "4.2.13", "4.2.14"} {
		if !found[id] {
			t.Errorf("%s is not found", id)
		}
	}
	if got := cistest.Summary(results); got != "cis pass=16 fail=3 warn=6" {
		t.Error(got)
	}
}

// Kubelet gets the Node's name only where it would not take it from the machine.
func TestHostName(t *testing.T) {
	for _, tt := range []struct {
		hostName, staticName string
		told                 bool
	}{
		{"edge-1", "edge-1", false}, {"Edge-1\n", "EDGE-1\n", false},
		{"edge-2", "edge-2", true}, {"edge-2", "edge-1", true}, {"", "edge-1", true},
		{"edge-1", "localhost", true}, {"edge-1", "edge-1.site", true}, {"edge-1", "", true},
	} {
		f := facts()
		f.HostName, f.StaticName = tt.hostName, tt.staticName
		unit := find(t, Render(base(), f), state.PathKey(unitDir+"/"+KubeletUnit)).Resource.(state.File)
		if got := strings.Contains(unit.Content, "--hostname-override=edge-1"); got != tt.told {
			t.Errorf("on a machine %q (%q) kubelet gets its name: %v",
				tt.hostName, tt.staticName, got)
		}
	}
}
