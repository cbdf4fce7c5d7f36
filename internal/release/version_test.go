package release

import (
	"regexp"
	"strings"
	"testing"
)

// Parse accepts what the regular expression of a semantic version without build metadata matches
// (https://semver.org).
func FuzzParse(f *testing.F) {
	semver := regexp.MustCompile(
		`\Av?(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})` +
			`(?:-((?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)` +
			`(?:\.(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*))?\z`)
	for _, s := range []string{
		"1.34.4", "v1.34.4-rc.1", "vv1.2.3", "1.2.3-", "1.2.3-a-", "1.2.3-rc.01", "1.2.3-.a",
		"1.2.3-a..b", "1.2", "1.2.3.4", "1..3", "01.2.3", "0.0.0", "1.2.1234567", "1.2.123456",
		"1.2.3-a.b-c", "-1.2.3",
		"1.2-3.4", "1.2.3--", "1.2.3-\u00e9", "1.2.+3", "1.2.3+x", "1.2.3-x+y", " 1.2.3", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, ok := Parse(s)
		if ok != semver.MatchString(s) {
			t.Fatalf("%q is read as %v, %v", s, v, ok)
		}
		if ok && v.String() != strings.TrimPrefix(s, "v") {
			t.Errorf("%q is read as %v", s, v)
		}
	})
}

func TestParse(t *testing.T) {
	for s, want := range map[string]string{
		"1.34.4": "1.34.4", "v1.34.4": "1.34.4", "1.34.4-rc.1": "1.34.4-rc.1", "1.34": "", "01.2.3": "",
		"1.2.3+x": "", "1.2.3.4": "", "": "", "1.2.3\n": "", "1.2.1234567": "",
	} {
		v, ok := Parse(s)
		if ok != (want != "") || ok && v.String() != want {
			t.Errorf("%q is read as %v, %v", s, v, ok)
		}
	}
	for s, want := range map[string]string{
		"v1.34.4": "1.34.4", "1.34": "1.34.0", "1.33.9-eks-1": "1.33.9", "v1.36.0+k3s1": "1.36.0",
		"v1.36.0-rc.1": "1.36.0-rc.1", "1.36.0-alpha.1.123+4f": "1.36.0-alpha.1.123",
		"v1.33.9-gke.1080000": "1.33.9",
		"latest":              "", "1": "",
		// No semantic version, which cannot be compared.
		"v1.34.0-rc.": "", "v1.36.3-rc..1": "", "v1.36.3-rc.01": "",
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

// A pre-release is older than its release, and newer than earlier releases.
func TestPreReleases(t *testing.T) {
	order := []string{
		"1.35.4", "1.36.0-alpha.1", "1.36.0-alpha.2", "1.36.0-beta.0", "1.36.0-rc.2",
		"1.36.0-rc.10", "v1.36.0", "1.36.1-rc.0", "1.36.1",
	}
	for i, a := range order {
		for j, b := range order {
			v, _ := Parse(a)
			w, _ := Parse(b)
			if got := v.Compare(w); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s and %s: %d", a, b, got)
			}
		}
	}
}
