package release

import (
	"strings"
	"testing"
)

func TestSkewOf(t *testing.T) {
	for _, test := range []struct {
		kubelet, server string
		want            Skew
	}{
		{"1.33.5", "v1.33.2", Works}, // patch versions do not count
		{"1.30.14", "1.33.2", Works},
		{"v1.33.5", "v1.33.2+build.7", Works},
		{"1.33.5", "1.34", Works},
		{"1.34.4", "v1.33.2", Newer},
		{"1.34.0-rc.1", "v1.33.2", Newer},
		{"1.34.0", "v1.34.0-rc.1", Works},
		{"1.29.14", "v1.33.2", TooOld},
		{"1.34.4", "unknown", Unreadable},
		{"", "1.34.4", Unreadable},
		{"2.0.0", "1.34.4", Unreadable},
	} {
		if got := SkewOf(test.kubelet, test.server); got != test.want {
			t.Errorf("%s and %s: got %v, want %v", test.kubelet, test.server, got, test.want)
		}
	}
}

func TestKubernetesFor(t *testing.T) {
	pinned := []string{"1.34.4", "1.33.10", "1.33.8", "1.32.0"}
	for server, want := range map[string]string{
		"v1.33.8":       "1.33.8",
		"1.33.9":        "1.33.8",
		"1.33.12":       "1.33.10",
		"1.32.1+vendor": "1.32.0",
		"1.35.0":        "1.34.4",
		"1.37.0":        "1.34.4",
		"v1.33.8-rc.1":  "1.32.0", // older than 1.33.8
		"v1.33.9-eks-1": "1.33.8",
	} {
		if got, err := newestFor(server, pinned); got != want || err != nil {
			t.Errorf("an API server of %s gets %q (%v), want %s", server, got, err, want)
		}
	}
	for server, want := range map[string]string{
		"1.31.9": "the newest known is 1.34.4, the oldest 1.32.0",
		"1.38.0": "goes with an API server of version 1.38.0",
		"?":      "is not a version x.y.z",
	} {
		got, err := newestFor(server, pinned)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("an API server of %s gets %q (%v), want %q", server, got, err, want)
		}
	}
	// A cluster of a supported version gets its own version, which is pinned.
	for _, server := range []string{"v1.34.0", "1.34.4", "1.35.4", "1.36.3"} {
		if got, err := KubernetesFor(server); err != nil || got != Bare(server) {
			t.Errorf("an API server of %s gets %q, %v", server, got, err)
		}
	}
}
