package flexnode

import (
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/config"
)

func TestOverlapped(t *testing.T) {
	const v4, v6 = "10.200.0.0/16", "fd00:10::/48"
	for _, tt := range []struct {
		pool, subnet string
		mask         int
		want         string
	}{
		{v4, "10.200.3.0/24", 24, "3"},
		{v4, "10.200.255.0/24", 24, "ff"},
		{v4, "10.200.3.64/26", 24, "3"},
		{v4, "10.200.2.0/23", 24, "2 3"},
		{v4, "10.201.3.0/24", 24, ""},
		{v4, "10.200.0.0/16", 24, ""},
		{"10.200.0.0/22", "10.0.0.0/8", 24, ""},
		{"10.200.0.0/23", "10.200.0.0/22", 24, "0 1"},
		{v4, "fd00::/64", 24, ""},
		{v4, "nonsense", 24, ""},
		{v6, "fd00:10:0:7::/64", 64, "7"},
		{"", "10.200.3.0/24", 24, ""},
	} {
		var keys []string
		for _, key := range Overlapped("c", tt.pool, tt.mask, tt.subnet) {
			keys = append(keys, strings.TrimLeft(strings.TrimPrefix(key, "c/"), "0"))
		}
		got := strings.Join(keys, " ")
		if strings.HasPrefix(tt.want, "0") {
			got = "0" + got // of which the zeros were cut off
		}
		if got != tt.want {
			t.Errorf("%s in %s: %q, want %q", tt.subnet, tt.pool, got, tt.want)
		}
	}
	for n := range 64 {
		key, subnet, _ := Slot("c", "node", v4, 24, n)
		if got := Overlapped("c", v4, 24, subnet); len(got) != 1 || got[0] != key {
			t.Errorf("%s: %v, want %s", subnet, got, key)
		}
	}
}

// A pod subnet can be read back from the label that says it.
func TestPodCIDROf(t *testing.T) {
	of := func(value string) string {
		return PodCIDROf(map[string]string{config.PodCIDRLabel: value})
	}
	for _, subnet := range []string{"10.244.1.0/24", "fd00:10:244::/64"} {
		if got := of(config.ShowPodCIDR(subnet)); got != subnet {
			t.Errorf("%s is read back as %q", subnet, got)
		}
	}
	for _, value := range []string{"", "-", "24", "10.244.1.0", "10.244.1.0-x", "a-b-24"} {
		if got := of(value); got != "" {
			t.Errorf("%q: %q", value, got)
		}
	}
}
