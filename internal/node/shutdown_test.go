package node

import (
	"slices"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// What kubelet leaves behind for a graceful shutdown is claimed only where kubelet does that.
func TestShutdownLeavesNothing(t *testing.T) {
	left := state.Residue{Kind: state.Files, Match: logindDir + "/99-kubelet.conf"}
	for period, claims := range map[string]bool{"": false, "0s": false, "45s": true} {
		c := base()
		c.Node.Kubelet.ShutdownGracePeriod = period
		keys := Render(c, facts()).Keys()
		if got := slices.Contains(keys, left.Key()); got != claims {
			t.Errorf("with %q the drop-in is claimed: %v", period, got)
		}
		if got := slices.Contains(keys, state.PathKey(logindDir)); got != claims {
			t.Errorf("with %q its directory is claimed: %v", period, got)
		}
	}
}
