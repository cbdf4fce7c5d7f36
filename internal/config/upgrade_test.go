package config

import (
	"testing"
	"time"
)

func TestUpgradePolicy(t *testing.T) {
	for drain, want := range map[string][2]bool{
		"": {false, true}, DrainMinor: {false, true}, DrainAlways: {true, true},
		DrainNever: {false, false},
	} {
		u := UpgradePolicy{Drain: drain}
		if got := [2]bool{u.Drains(false), u.Drains(true)}; got != want {
			t.Errorf("%q drains for a patch and for a minor version: %v", drain, got)
		}
	}
	if d := (UpgradePolicy{}).DrainDeadline(); d != 15*time.Minute {
		t.Error(d)
	}
	if d := (UpgradePolicy{Deadline: "2h"}).DrainDeadline(); d != 2*time.Hour {
		t.Error(d)
	}
}
