package health

import (
	"strings"
	"testing"
)

// sized is evidence of a machine that is to join, of that size.
func sized(memory, free int64) Evidence {
	return machine(func(m *Machine) {
		m.MemoryBytes, m.Free, m.Installed = memory, map[string]int64{imagesDir: free}, false
	})
}

// Below what works a machine is refused, and only warned below what the documents ask for.
func TestMemorySize(t *testing.T) {
	const owner = OwnerMachine
	check(t, "MemorySize", []expect{
		blank("NotChecked"),
		{"too small", sized(400<<20, 1<<40), False, "MemoryTooSmall", owner, "400 MB of memory"},
		{"sold as 512 MB", sized(460<<20, 1<<40), True, "", "", ""},
	})
	if err := Problem(Evaluate(Preflight, sized(400<<20, 1<<40))); err == nil ||
		!strings.Contains(err.Error(), "MemorySize") {
		t.Errorf("preflight says %v", err)
	}
}

func TestSizeAdvised(t *testing.T) {
	const small, owner = "BelowRecommendedSize", OwnerMachine
	installed := sized(8<<30, 5<<30)
	installed.Machine.Installed = true
	check(t, "SizeAdvised", []expect{
		blank("NotChecked"),
		{"1 GB", sized(1000<<20, 1<<40), False, small, owner, "1000 MB of memory (2 GB recommended)"},
		{"sold as 2 GB", sized(1900<<20, 1<<40), True, "", "", ""},
		{"a small disk", sized(8<<30, 20_900_000_000), False, small, owner,
			"only 20 GB free below /var/lib (25 GB recommended)"},
		{"both", sized(1000<<20, 5<<30), False, small, owner, "recommended) and 5 GB free"},
		{"a disk that the node has filled", installed, True, "", "", ""},
	})
	e := sized(1000<<20, 5<<30)
	if err := Problem(Evaluate(Preflight, e)); err != nil {
		t.Errorf("it keeps a machine from being a node: %v", err)
	}
	cautions := Cautions(e)
	if len(cautions) != 1 || cautions[0].Type != "SizeAdvised" || cautions[0].Ill() {
		t.Errorf("the cautions are %v", cautions)
	}
}
