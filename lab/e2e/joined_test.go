package e2e

import (
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// Checks that share one machine, in order, which joins and leaves: the benchmark, NVIDIA's runtime,
// and other programs' objects.
func TestJoinedMachine(t *testing.T) {
	t.Parallel()
	m := machine(t, "joined-1")
	installNvidia(t, m)
	must(t, m, "bootstrap")
	for _, step := range []struct {
		name string
		run  func(*testing.T, lab.Machine)
	}{
		{"CIS", cis},
		{"NVIDIARuntime", nvidiaRuns},
		{"OthersAreLeftAlone", othersAreLeftAlone},
	} {
		t.Run(step.name, func(t *testing.T) { step.run(t, m) })
	}
}
