package e2e

import (
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// What can be seen of one machine that has joined, boots again and leaves: the benchmark, NVIDIA's
// runtime, the owner's kernel parameters, and what others have made beside the node. They share it,
// one after the other.
func TestJoinedMachine(t *testing.T) {
	t.Parallel()
	m := machine(t, "joined-1")
	ownersSysctls(t, m)
	installNvidia(t, m)
	must(t, m, "bootstrap")
	for _, step := range []struct {
		name string
		run  func(*testing.T, lab.Machine)
	}{
		{"CIS", cis},
		{"NVIDIARuntime", nvidiaRuns},
		{"SysctlsAtBoot", sysctlsAtBoot},
		{"OthersAreLeftAlone", othersAreLeftAlone},
	} {
		t.Run(step.name, func(t *testing.T) { step.run(t, m) })
	}
}
