package config

import "testing"

// A label's value can hold a pod subnet.
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
	}
}
