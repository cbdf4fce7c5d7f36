package change

import (
	"testing"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// Pods move away before kubelet's minor version or containerd's major one changes.
func TestDrains(t *testing.T) {
	of := func(kubernetes, containerd, drain string) config.Config {
		c := config.Config{
			Kubernetes: config.Kubernetes{Version: kubernetes},
			Containerd: config.Containerd{Version: containerd},
		}
		c.Agent.UpgradePolicy.Drain = drain
		return c
	}
	was := of("1.34.4", "1.7.28", "")
	for name, tt := range map[string]struct {
		to   config.Config
		want bool
	}{
		"nothing":                      {was, false},
		"a patch of Kubernetes":        {of("1.34.9", "1.7.28", ""), false},
		"a minor of Kubernetes":        {of("1.35.0", "1.7.28", ""), true},
		"a minor of containerd":        {of("1.34.4", "1.8.0", ""), false},
		"a major of containerd":        {of("1.34.4", "2.2.1", ""), true},
		"a major of containerd, never": {of("1.34.4", "2.2.1", config.DrainNever), false},
	} {
		if got := drains(was, tt.to); got != tt.want {
			t.Errorf("%s: drains is %t", name, got)
		}
	}
}
