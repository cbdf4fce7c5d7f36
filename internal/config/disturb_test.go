package config

import "testing"

// TestDisturbs holds for which settings a node asks before it applies them.
func TestDisturbs(t *testing.T) {
	for name, tt := range map[string]struct {
		edit         func(c *Config)
		want, always bool // always is with the drain policy of that name
		drains       bool
	}{
		"nothing": {edit: func(*Config) {}},
		"a version": {edit: func(c *Config) { c.Kubernetes.Version = "1.35.1" }, want: true,
			always: true},
		"another pod subnet": {edit: func(c *Config) { c.CNI.PodCIDR = "10.1.0.0/24" }, want: true,
			always: true, drains: true},
		"a pod subnet as the Node's": {edit: func(c *Config) { c.CNI.PodCIDR = "" }, want: true,
			always: true, drains: true},
		"pods": {edit: func(c *Config) { c.Node.MaxPods = 42 }, want: true, always: true},
		"a label": {edit: func(c *Config) { c.Node.Labels = map[string]string{"a/b": "c"} },
			always: true},
		"the drain":   {edit: func(c *Config) { c.Agent.ReadyTimeout = "7m" }, always: true},
		"the address": {edit: func(c *Config) { c.Node.Kubelet.ServerURL = "https://other" }},
		"the CA":      {edit: func(c *Config) { c.Node.Kubelet.CACertData = "QQ==" }},
	} {
		for _, always := range []bool{false, true} {
			from := defaults()
			from.CNI.PodCIDR = "10.0.0.0/24"
			want := tt.want
			if always {
				from.Agent.UpgradePolicy.Drain, want = DrainAlways, tt.always
			}
			to := from
			tt.edit(&to)
			if got := from.Disturbs(to); got != want {
				t.Errorf("%s, drain always: %v: disturbs: %v", name, always, got)
			}
			if got := from.Drains(to); got != (tt.drains || always && tt.always) {
				t.Errorf("%s, drain always: %v: drains: %v", name, always, got)
			}
		}
	}
}
