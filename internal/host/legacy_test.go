package host

import (
	"os/exec"
	"strings"
	"testing"
)

// What the kernel tells of iptables-legacy is another text whenever rules or policies are others,
// and the same while packets are only counted.
func TestLegacyTable(t *testing.T) {
	for family, program := range map[string]string{
		"ip": "iptables-legacy", "ip6": "ip6tables-legacy",
	} {
		h := realFirewall(t, program)
		if _, err := exec.Command(program, "-S").Output(); err != nil {
			t.Skip("this kernel has no " + program)
		}
		ask := func() string {
			t.Helper()
			text, err := h.Kernel.LegacyTable(family)
			if err != nil || text == "" {
				t.Fatalf("%s: %q, %v", family, text, err)
			}
			return text
		}
		before := ask()
		for _, change := range []string{
			"-P INPUT DROP",
			"-P INPUT ACCEPT",
			"-A INPUT -c 5 700 -p tcp --dport 22 -m limit --limit 5/min -j ACCEPT",
			"-R INPUT 1 -c 6 800 -p tcp --dport 23 -m limit --limit 5/min -j ACCEPT", // as large
			"-R INPUT 1 -p tcp --dport 23 -m limit --limit 5/min -j DROP",            // as large
			"-P FORWARD DROP",
		} {
			tool(t, append([]string{program}, strings.Fields(change)...)...)
			after := ask()
			if after == before {
				t.Errorf("%s %s is not seen", program, change)
			}
			before = after
		}
		tool(t, strings.Fields(program+" -I INPUT 1 -c 9 900 -j ACCEPT")...)
		counted := ask()
		tool(t, program, "-Z")
		if after := ask(); after != counted {
			t.Errorf("%s: other counters are other rules", program)
		}
	}
}
