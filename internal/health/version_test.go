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
	for _, kind := range []string{"NotVulnerable"} {
		if c := find(kind); c.Status != True {
			t.Errorf("%+v", c)
		}
	}
	e.Wanted.Runc.Version = "1.3.2"
	if c := find("NotVulnerable"); c.Status != False || c.Reason != "Vulnerable" || c.Ill() ||
		!strings.Contains(c.Message, "runc 1.3.2") || !strings.Contains(c.Message, "CVE-2025-31133") {
		t.Errorf("%+v", c)
	}
}
