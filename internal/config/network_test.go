package config

import "testing"

// A pod subnet can be read back from the label that tells it, which a label's value can hold.
func TestPodCIDRLabel(t *testing.T) {
	for subnet, want := range map[string]string{
		"10.244.1.0/24":     "10.244.1.0-24",
		"fd00:10:244::/64":  "fd00-0010-0244-0000-0000-0000-0000-0000-64",
		"not of this world": "",
	} {
		value := ShowPodCIDR(subnet)
		if value != want || !isLabelValue(value) {
			t.Errorf("%s: %q", subnet, value)
		}
		if got := ReadPodCIDR(value); want != "" && got != subnet {
			t.Errorf("%s: read back as %q", subnet, got)
		}
	}
	for _, value := range []string{"", "-", "24", "10.244.1.0", "10.244.1.0-x", "a-b-24"} {
		if got := ReadPodCIDR(value); got != "" {
			t.Errorf("%q: %q", value, got)
		}
	}
}
