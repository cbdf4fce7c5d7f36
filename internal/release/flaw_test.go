package release

import (
	"strings"
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

// Each flaw has its publication date and source; its fixed releases are sorted newest first.
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

// Support dates are valid; support includes the last day and does not end for a branch without one.
func TestSupportEnded(t *testing.T) {
	for branch, last := range support {
		name, line, _ := strings.Cut(branch, " ")
		day, err := time.Parse(time.DateOnly, last)
		if err != nil {
			t.Error(err)
		}
		after := day.AddDate(0, 0, 1).Format(time.DateOnly)
		if SupportEnded(name, line+".1", last) != "" || SupportEnded(name, line+".1", after) != last {
			t.Errorf("%s does not end after %s", branch, last)
		}
	}
	for _, key := range []string{"containerd@2.3.4", "kubelet@1.99.0", "kubelet@", "runc@1.1.0"} {
		name, version, _ := strings.Cut(key, "@")
		if got := SupportEnded(name, version, "2099-01-01"); got != "" {
			t.Errorf("%s has ended %s", key, got)
		}
	}
}
