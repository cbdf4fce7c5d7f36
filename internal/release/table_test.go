package release

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every default is pinned, works with the version that it depends on, and is recommended or newer.
func TestDefaults(t *testing.T) {
	for minor := OldestMinor() - 1; minor <= NewestMinor()+1; minor++ {
		kubernetes := fmt.Sprintf("1.%d.0", minor)
		s := Set{Kubernetes: kubernetes}.Filled()
		if !ContainerdWorks(kubernetes, s.Containerd) ||
			ContainerdAdvice(kubernetes, s.Containerd) != "" || Flawed("runc", s.Runc) != "" ||
			Flawed("containerd", s.Containerd) != "" {
			t.Errorf("the defaults of Kubernetes %s are %+v: %s %s", kubernetes, s,
				ContainerdAdvice(kubernetes, s.Containerd), Flawed("runc", s.Runc))
		}
		for name, version := range map[string]string{"containerd": s.Containerd, "runc": s.Runc,
			"cni-plugins": s.CNI, "node-problem-detector": s.NPD} {
			if !slices.Contains(Pinned(name), version) {
				t.Errorf("Kubernetes %s has %s %q by default, which is not pinned", kubernetes,
					name, version)
			}
		}
	}
}

// A default is the newest pinned patch of its branch.
func TestDefaultsAreCurrent(t *testing.T) {
	s := Set{Kubernetes: "1.36.0"}.Filled()
	for name, version := range map[string]string{"containerd": s.Containerd, "runc": s.Runc} {
		v, _ := Parse(version)
		for _, other := range Pinned(name) {
			if o, _ := Parse(other); o.line() == v.line() && o.Compare(v) > 0 {
				t.Errorf("the default of %s is %s, but %s is pinned", name, version, other)
			}
		}
	}
}

// Rows have consecutive Kubernetes versions and containerd branches newest first, and recent
// versions of Kubernetes are pinned.
func TestRows(t *testing.T) {
	var minors []int
	for _, r := range rows() {
		minors = append(minors, r.minor)
		for i, v := range r.tested[1:] {
			if v.line().Compare(r.tested[i].line()) >= 0 {
				t.Errorf("1.%d: %s is not older than the one before it", r.minor, v)
			}
		}
	}
	for i, minor := range minors[1:] {
		if minor != minors[i]-1 {
			t.Errorf("the rows are of %v", minors)
		}
	}
	for _, minor := range []int{33, 34, 35, 36} {
		prefix := fmt.Sprintf("1.%d.", minor)
		if !slices.ContainsFunc(Pinned("kubelet"), func(v string) bool {
			return strings.HasPrefix(v, prefix)
		}) {
			t.Errorf("no Kubernetes 1.%d is pinned", minor)
		}
	}
}

func TestFilled(t *testing.T) {
	cni, npd := Pinned("cni-plugins")[0], Pinned("node-problem-detector")[0]
	branch := func(s Set) Set { // only the branches, since patches change with each release
		for _, version := range []*string{&s.Containerd, &s.Runc} {
			if v, ok := Parse(*version); ok {
				*version = v.line().String()
			}
		}
		return s
	}
	for name, tt := range map[string]struct{ set, want Set }{
		"nothing is known": {Set{}, Set{CNI: cni, NPD: npd}},
		"Kubernetes": {Set{Kubernetes: "v1.36.2"},
			Set{"v1.36.2", "2.3.0", "1.4.0", cni, npd}},
		"an older Kubernetes": {Set{Kubernetes: "1.34.4"}, Set{"1.34.4", "2.3.0", "1.4.0", cni, npd}},
		"Kubernetes of the future": {Set{Kubernetes: "1.41.0"},
			Set{"1.41.0", "2.3.0", "1.4.0", cni, npd}},
		"an older containerd": {Set{Kubernetes: "1.36.2", Containerd: "2.2.0"},
			Set{"1.36.2", "2.2.0", "1.3.0", cni, npd}},
		"a containerd to come": {Set{Kubernetes: "1.36.2", Containerd: "2.3.0-rc.1"},
			Set{"1.36.2", "2.3.0", "1.4.0", cni, npd}},
		"containerd alone": {Set{Containerd: "1.7.0"}, Set{"", "1.7.0", "1.3.0", cni, npd}},
		"all":              {Set{"1", "2", "3", "4", "5"}, Set{"1", "2", "3", "4", "5"}},
	} {
		if diff := cmp.Diff(tt.want, branch(tt.set.Filled())); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestContainerd(t *testing.T) {
	for _, tt := range []struct {
		kubernetes, containerd string
		works                  bool
		advice                 string
	}{
		{"1.36.4", "2.3.4", true, ""},
		{"1.36.4", "2.9.0", true, ""},
		{"1.36.4", "2.1.9", true, "2.3.0+, 2.2.0+"},
		{"1.36.4", "2.3.0-rc.1", true, "2.3.0+, 2.2.0+"}, // not yet what is recommended
		{"1.36.4", "2.4.0-rc.1", true, ""},
		{"1.36.0-rc.1", "1.7.34", false, "2.3.0+, 2.2.0+"},
		{"1.36.4", "1.7.34", false, "2.3.0+, 2.2.0+"},
		{"1.37.0", "1.7.34", false, "2.3.0+, 2.2.0+"},
		{"1.35.8", "2.3.0", true, ""}, // newer than any at its time
		{"1.35.8", "2.1.4", true, "2.2.0+, 2.1.5+, 1.7.28+"},
		{"1.35.8", "2.0.9", true, "2.2.0+, 2.1.5+, 1.7.28+"},
		{"1.35.8", "1.7.34", true, ""},
		{"1.34.4", "2.1.6", true, ""},
		{"1.29.0", "2.2.1", true, ""},
		{"1.20.0", "1.7.1", true, "1.7.11+"},
		{"", "1.7.1", true, ""},
		{"1.36.4", "", true, ""},
	} {
		advice := ContainerdAdvice(tt.kubernetes, tt.containerd)
		if ContainerdWorks(tt.kubernetes, tt.containerd) != tt.works ||
			!strings.HasSuffix(advice, tt.advice) || (advice == "") != (tt.advice == "") {
			t.Errorf("Kubernetes %s, containerd %s: works %v, %q", tt.kubernetes, tt.containerd,
				!tt.works, advice)
		}
	}
}
