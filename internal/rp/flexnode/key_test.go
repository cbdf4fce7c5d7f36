package flexnode

import "testing"

func TestKeys(t *testing.T) {
	for key, want := range map[string][2]string{
		"s/g/c":   {"s/g/c", "c"},
		"s/g/c/n": {"s/g/c", "n"},
		"s":       {"s", "s"},
		"":        {"", ""},
	} {
		if got := [2]string{ClusterOf(key), LastOf(key)}; got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}
