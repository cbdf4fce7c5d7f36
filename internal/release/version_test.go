package release

import "testing"

func TestParse(t *testing.T) {
	for s, want := range map[string]string{
		"1.34.4": "1.34.4", "v1.34.4": "1.34.4", "1.34.4-rc.1": "1.34.4", "1.34": "", "01.2.3": "",
		"1.2.3+x": "", "1.2.3.4": "", "": "", "1.2.3\n": "", "1.2.1234567": "",
	} {
		v, ok := Parse(s)
		if ok != (want != "") || ok && v.String() != want {
			t.Errorf("%q is read as %v, %v", s, v, ok)
		}
	}
	for s, want := range map[string]string{
		"v1.34.4": "1.34.4", "1.34": "1.34.0", "1.33.9-eks-1": "1.33.9", "v1.36.0+k3s1": "1.36.0",
		"latest": "", "1": "",
	} {
		v, ok := ParseServer(s)
		if ok != (want != "") || ok && v.String() != want {
			t.Errorf("an API server's %q is read as %v, %v", s, v, ok)
		}
	}
	for s, want := range map[string]string{"v1.2.3": "1.2.3", "1.2.3": "1.2.3", "vx": "vx"} {
		if got := Bare(s); got != want {
			t.Errorf("%q without v is %q", s, got)
		}
	}
}
