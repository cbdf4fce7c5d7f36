package health

import (
	"strings"
	"testing"
)

func TestVersions(t *testing.T) {
	e := good()
	find := func(kind string) Condition {
		for _, c := range Evaluate(Watch, e) {
			if c.Type == kind {
				return c
			}
		}
		t.Fatalf("there is no %s", kind)
		return Condition{}
	}
	for _, kind := range []string{"NotVulnerable", "VersionsSupported"} {
		if c := find(kind); c.Status != True {
			t.Errorf("%+v", c)
		}
	}
	e.Wanted.Runc.Version = "1.3.2"
	if c := find("NotVulnerable"); c.Status != False || c.Reason != "Vulnerable" || c.Ill() ||
		!strings.Contains(c.Message, "runc 1.3.2") || !strings.Contains(c.Message, "CVE-2025-31133") {
		t.Errorf("%+v", c)
	}
	e.Wanted.Kubernetes.Version, e.Wanted.Containerd.Version = "1.34.4", "2.2.7"
	for day, want := range map[string]string{
		"": "", "2026-10-27": "",
		"2026-10-28": "kubelet 1.34.4 gets no fixes after 2026-10-27: upgrade to a newer minor version",
		"2026-11-07": "kubelet 1.34.4 gets no fixes after 2026-10-27: upgrade to a newer minor " +
			"version; " +
			"containerd 2.2.7 gets no fixes after 2026-11-06: upgrade to a newer minor version",
	} {
		e.Today = day
		c := find("VersionsSupported")
		if ended := c.Reason == "EndOfSupport" && c.Status == False; ended != (want != "") || c.Ill() ||
			ended && c.Message != want {
			t.Errorf("on %q: %+v", day, c)
		}
	}
}

// A kubelet that the next upgrade of its cluster leaves too old is shown, and harms nothing yet.
func TestClusterUpgradable(t *testing.T) {
	for server, reason := range map[string]string{
		"1.35.1": "", "v1.37.4": "", "v1.38.0": "KubeletBehind", "1.38.2+vendor": "KubeletBehind",
		"1.39.0": "", "1.34.0": "", "new": "VersionUnknown",
	} {
		e := good()
		e.Wanted.Kubernetes.Version, e.ServerVersion = "1.35.1", Answered(server, nil)
		c := condition(t, "ClusterUpgradable", e)
		if reason == "" && c.Status != True || reason != "" && c.Reason != reason || c.Ill() {
			t.Errorf("with %s it is %+v", server, c)
		}
	}
}
