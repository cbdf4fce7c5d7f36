package health

import (
	"strings"
	"testing"
	"time"
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
	e.Now = time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
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
	const want = "kubelet 1.34.4 gets no more fixes since 2026-10-27: take a newer branch; " +
		"containerd 2.2.7 gets no more fixes since 2026-11-06: take a newer branch"
	if c := find("VersionsSupported"); c.Status != False || c.Reason != "EndOfSupport" || c.Ill() ||
		c.Message != want {
		t.Errorf("%+v", c)
	}
}
