package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// safety holds the settings of a configuration that protect the machine and its pods.
type safety struct {
	Seccomp         *bool
	Pids            *int
	Grace, Critical string
}

func safetyOf(c Config) safety {
	k := c.Node.Kubelet
	return safety{
		k.SeccompDefault, k.PodPidsLimit, k.ShutdownGracePeriod, k.CriticalGracePeriod,
	}
}

// A machine that joins is protected; what is asked for counts, and remains as long as it is left
// open.
func TestSafety(t *testing.T) {
	on, pids, few := true, 4096, 100
	joined, _ := parseOK(t, tokenDocument(t))
	tuned := tokenDocument(t).with(t, `{"node": {"kubelet": {
		"podPidsLimit": 100, "shutdownGracePeriod": "20s"
	}}}`)
	for _, test := range []struct {
		name   string
		before *Config
		doc    document
		want   safety
	}{
		{"a join", nil, tokenDocument(t), safety{&on, &pids, "30s", "10s"}},
		{"a node of now", &joined, tokenDocument(t), safety{&on, &pids, "30s", "10s"}},
		{"a node of now that asks", &joined, tuned, safety{&on, &few, "20s", "6s"}},
		{"no waiting", &joined, tokenDocument(t).with(t,
			`{"node": {"kubelet": {"shutdownGracePeriod": "0s"}}}`), safety{&on, &pids, "0s", "0s"}},
	} {
		loaded, err := Parse(test.doc.bytes(t), Host{HostName: "h", Arch: "amd64", Before: test.before})
		c := loaded.Config
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if diff := cmp.Diff(test.want, safetyOf(c)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	bad := parseBad(t, tokenDocument(t).with(t, `{"node": {"kubelet": {
		"podPidsLimit": 3, "shutdownGracePeriod": "10s", "shutdownGracePeriodCriticalPods": "11s"
	}}}`).bytes(t))
	want := []string{
		"node.kubelet.podPidsLimit", "node.kubelet.shutdownGracePeriodCriticalPods",
	}
	var paths []string
	for _, p := range bad {
		paths = append(paths, p.Path)
	}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
