package health

import (
	"testing"

	"github.com/Azure/AKSFlexNode/internal/transition"
)

// changing is evidence of a change under way.
func inTransition() Evidence {
	return with(func(e *Evidence) {
		e.Transition = &transition.Transition{Kind: transition.Change, Phase: "drain"}
	})
}

func TestHostAsConfigured(t *testing.T) {
	drift := func(n int, exhausted bool) Evidence {
		return with(func(e *Evidence) { e.Drift, e.BudgetExhausted = Answered(n, nil), exhausted })
	}
	check(t, HostAsConfigured, []expect{
		blank("NotChecked"),
		{"drift", drift(2, false), False, "Drift", OwnerMachine, "on this machine: 2"},
		{"repaired too often", drift(1, true), False, "RepairBudgetExhausted", OwnerMachine,
			"find out what changes them"},
		{"a change is under way", inTransition(), Unknown, "ChangeInProgress", "", "in phase drain"},
		{"not observed", with(func(e *Evidence) { e.Drift = failed[int]() }), Unknown,
			"NotAnswered", "", ""},
	})
}

func TestStoreIntact(t *testing.T) {
	check(t, "StoreIntact", []expect{
		blank("NotChecked"),
		{"damaged", with(func(e *Evidence) {
			e.Damaged = Answered([]string{"kubelet", "runc"}, nil)
		}), False, "Damaged", OwnerMachine, "the files of kubelet, runc below"},
	})
}

func TestConfigurationAccepted(t *testing.T) {
	check(t, "ConfigurationAccepted", []expect{
		{"rejected", with(func(e *Evidence) {
			e.Rejected = &Rejection{Version: "1763726400", Reason: "KubeletStable", At: now()}
		}), False, "Rejected", OwnerConfiguration, "1763726400 was rejected at 2026-11-21T12:00:00Z"},
		{"refused by the policy", with(func(e *Evidence) {
			e.Rejected = &Rejection{Version: "8", Reason: "paths:\nno", At: now(), ByPolicy: true}
		}), False, RefusedByPolicy, OwnerMachine,
			"has refused the configuration 8 at 2026-11-21T12:00:00Z, and the node still runs the " +
				"previous one: paths: no; `aks-flex-node policy show`"},
		{"a change is under way", inTransition(), Unknown, "ChangeInProgress", "", ""},
	})
}
