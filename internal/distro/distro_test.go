package distro

import "testing"

func TestSupported(t *testing.T) {
	for _, tt := range []struct {
		id, version string
		want        bool
	}{
		{"ubuntu", "22.04", true}, {"ubuntu", "26.10", true}, {"ubuntu", "20.04", false},
		{"ubuntu", "22", false}, {"ubuntu", "", false}, {"debian", "12", true}, {"debian", "13", true},
		{"debian", "11", false}, {"debian", "x", false}, {"raspbian", "12", false}, {"", "12", false},
	} {
		if got := Supported(tt.id, tt.version); got != tt.want {
			t.Errorf("%s %s: %v", tt.id, tt.version, got)
		}
	}
	const all = "Ubuntu 22.04 or later and Debian 12 or later"
	if got := AllSupported(); got != all {
		t.Errorf("supported: %s", got)
	}
}

func TestFind(t *testing.T) {
	for id, name := range map[string]string{"ubuntu": "Ubuntu", "debian": "Debian", "mint": "Debian"} {
		if d, ok := Find(id); d.Name != name || ok != (d.ID == id) {
			t.Errorf("%s is %s, %v", id, d.Name, ok)
		}
	}
}
