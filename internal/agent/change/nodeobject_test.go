package change

import (
	"testing"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
)

// A Node has its resources under the names by which pods ask for them.
func TestCapacity(t *testing.T) {
	var c config.Config
	c.Node.MaxPods = 110
	list := capacity(c, host.Facts{
		CPUs: 4000, MemoryBytes: 8 << 30, DiskBytes: 100 << 30,
		HugePages: map[int64]int64{2 << 20: 64 << 20, 1 << 30: 0},
	})
	got := map[string]string{}
	for name, quantity := range list {
		got[string(name)] = quantity.String()
	}
	for name, want := range map[string]string{
		"pods": "110", "cpu": "4", "memory": "8Gi", "ephemeral-storage": "100Gi",
		"hugepages-2Mi": "64Mi", "hugepages-1Gi": "0",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if len(got) != 6 {
		t.Errorf("the resources are %v", got)
	}
}
