package release

import (
	"strings"
	"sync"
	"testing"
	"time"
)

func TestFlawed(t *testing.T) {
	for key, id := range map[string]string{
		"runc@1.5.0": "", "runc@1.4.0": "", "runc@1.3.3": "", "runc@1.2.9": "", "runc@": "",
		"runc@1.3.2": "CVE-2025-31133", "runc@1.3.0": "CVE-2025-52881", "runc@1.2.7": "CVE-2025-52565",
		"runc@v1.1.15": "CVE-2025-31133", "runc@1.4.0-rc.2": "CVE-2025-31133",
		"containerd@2.3.2": "", "containerd@2.4.0": "", "containerd@2.2.7": "", "containerd@1.7.34": "",
		"containerd@2.3.1": "CVE-2026-53488", "containerd@2.1.8": "CVE-2026-53488",
		"containerd@1.7.32": "CVE-2026-53488", "containerd@1.6.38": "",
		"kubelet@1.34.0": "", "cni-plugins@1.3.0": "",
	} {
		name, version, _ := strings.Cut(key, "@")
		got := Flawed(name, version)
		if (got == "") != (id == "") || !strings.Contains(got, id) {
			t.Errorf("%s: %q", key, got)
		}
	}
	const want = "runc 1.3.2 lets a container break out (CVE-2025-31133, CVE-2025-52565, " +
		"CVE-2025-52881, 2025-11-05, https://github.com/opencontainers/runc/security/advisories/" +
		"GHSA-9493-h29p-rfm2): take 1.4.0+, 1.3.3+, 1.2.8+"
	if got := Flawed("runc", "v1.3.2"); got != want {
		t.Errorf("got %s", got)
	}
}

// Each flaw says when and where it was told, and its first release without it is newest first.
func TestFlawsAreComplete(t *testing.T) {
	for _, f := range flaws() {
		if _, err := time.Parse(time.DateOnly, f.Published); err != nil || f.IDs == "" ||
			!strings.HasPrefix(f.Source, "https://") || len(f.Fixed) == 0 {
			t.Errorf("%+v: %v", f, err)
		}
		for i, v := range f.Fixed[1:] {
			if v.line().Compare(f.Fixed[i].line()) >= 0 {
				t.Errorf("%s: %s is not older than the one before it", f.IDs, v)
			}
		}
	}
}

// support are the days on which release branches get their last fixes, by artifact and branch: of
// Kubernetes those of https://kubernetes.io/releases/patch-releases/, to come by its rule of 14 months;
// of containerd those of its RELEASES.md, as planned in November 2026. The long-term containerd 2.3
// has two years from April 2026 at least, and no day yet.
var support = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"kubelet 1.29": "2025-02-28", "kubelet 1.30": "2025-07-15", "kubelet 1.31": "2025-11-11",
		"kubelet 1.32": "2026-02-28", "kubelet 1.33": "2026-06-28", "kubelet 1.34": "2026-10-27",
		"kubelet 1.35": "2027-02-28", "kubelet 1.36": "2027-06-28",
		"containerd 1.7": "2026-09-30", "containerd 2.0": "2025-11-07",
		"containerd 2.1": "2026-05-05", "containerd 2.2": "2026-11-06",
	}
})

// The days in docs/versions.md are days.
func TestSupport(t *testing.T) {
	for branch, day := range support() {
		if _, err := time.Parse(time.DateOnly, day); err != nil {
			t.Errorf("%s: %v", branch, err)
		}
	}
}
