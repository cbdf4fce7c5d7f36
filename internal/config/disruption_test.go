package config

import "testing"

// Pods move away before kubelet's minor version or containerd's major one changes.
func TestDrains(t *testing.T) {
	of := func(kubernetes, containerd, drain string) Config {
		c := Config{
			Kubernetes: Kubernetes{Version: kubernetes},
			Containerd: Containerd{Version: containerd},
		}
		c.Agent.UpgradePolicy.Drain = drain
		return c
	}
	was := of("1.34.4", "1.7.28", "")
	moved, labelled := of("1.34.4", "1.7.28", DrainAlways), of("1.34.4", "1.7.28", DrainAlways)
	moved.Node.Kubelet.CACertData, labelled.Node.Labels = "QQ==", map[string]string{"a/b": "c"}
	for name, tt := range map[string]struct {
		to   Config
		want bool
	}{
		"nothing":                      {was, false},
		"a patch of Kubernetes":        {of("1.34.9", "1.7.28", ""), false},
		"a minor of Kubernetes":        {of("1.35.0", "1.7.28", ""), true},
		"a minor of containerd":        {of("1.34.4", "1.8.0", ""), false},
		"a major of containerd":        {of("1.34.4", "2.2.1", ""), true},
		"a major of containerd, never": {of("1.34.4", "2.2.1", DrainNever), false},
		"a CA, always":                 {moved, false},
		"a label, always":              {labelled, true},
	} {
		was.Agent.UpgradePolicy.Drain = tt.to.Agent.UpgradePolicy.Drain
		if got := was.Drains(tt.to); got != tt.want {
			t.Errorf("%s: drains is %t", name, got)
		}
	}
}

// TestDisruption holds what an agent does to the pods for one setting that differs.
func TestDisruption(t *testing.T) {
	text := func(s string) *string { return &s }
	kubernetes := func(to string) Difference {
		return Difference{Path: "kubernetes.version", From: text("1.34.4"), To: text(to)}
	}
	pods := Difference{Path: "node.maxPods", From: text("110"), To: text("60")}
	label := Difference{Path: `node.labels["a/b"]`, To: text("c")}
	server := Difference{
		Path: "node.kubelet.serverURL", From: text("https://a"), To: text("https://b")}
	for name, tt := range map[string]struct {
		drain string
		d     Difference
		want  string
	}{
		"a label":                {"", label, DisruptsNothing},
		"a label, always":        {DrainAlways, label, Drain},
		"pods":                   {"", pods, Restart},
		"pods, always":           {DrainAlways, pods, Drain},
		"a patch":                {"", kubernetes("1.34.9"), Restart},
		"a minor version":        {"", kubernetes("1.35.0"), Drain},
		"a minor version, never": {DrainNever, kubernetes("1.35.0"), Restart},
		"a major of containerd": {"", Difference{Path: "containerd.version",
			From: text("1.7.28"), To: text("2.2.1")}, Drain},
		"a minor of containerd": {"", Difference{Path: "containerd.version",
			From: text("2.1.0"), To: text("2.2.1")}, Restart},
		"runc": {"", Difference{Path: "runc.version", From: text("1.3.4"), To: text("2.0.0")},
			Restart},
		"the API server":         {"", server, Restart},
		"the API server, always": {DrainAlways, server, Restart},
	} {
		to := map[string]any{"agent": map[string]any{"upgradePolicy": map[string]any{
			"drain": tt.drain}}}
		if got := DisruptionOf(tt.d, to); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}
