package health

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// hostAsConfigured: nothing on the machine differs from the applied configuration.
func hostAsConfigured(e Evidence) Condition {
	if e.Transition != nil {
		return changing(*e.Transition)
	}
	if !e.Drift.OK() {
		return e.Drift.missing()
	}
	n := e.Drift.Value
	if n == 0 {
		return holds()
	}
	differ := "differences from the applied configuration on this machine: " + strconv.Itoa(n) +
		" (`aks-flex-node drift` lists them)"
	if e.BudgetExhausted {
		return fails(OwnerMachine, "RepairBudgetExhausted", differ+"; they were repaired several times "+
			"and came again: find out what changes them, then run `aks-flex-node drift --repair`")
	}
	return fails(OwnerMachine, "Drift", differ+"; run `aks-flex-node drift --repair`")
}

// storeIntact: the programs of the node are those that were verified when they were fetched.
func storeIntact(e Evidence) Condition {
	if !e.Damaged.OK() {
		return e.Damaged.missing()
	}
	if names := e.Damaged.Value; len(names) > 0 {
		return fails(OwnerMachine, "Damaged", "the files of "+strings.Join(names, ", ")+" below "+
			"/opt/aks-flex-node/store are not what was verified when they were fetched; find out who "+
			"or what has changed them, then run `aks-flex-node drift --repair`")
	}
	return holds()
}

// configurationAccepted: the configuration that is wanted has not failed on this node.
func configurationAccepted(e Evidence) Condition {
	switch {
	case e.Transition != nil:
		return changing(*e.Transition)
	case e.Rejected != nil:
		r := *e.Rejected
		return fails(OwnerConfiguration, "Rejected", fmt.Sprintf("the configuration %s was rejected "+
			"at %s, and the node runs on the one before it: %s; correct it, or have it tried again "+
			"with `aks-flex-node bootstrap`", r.Version, r.At.UTC().Format(time.RFC3339), r.Reason))
	}
	return holds()
}

func changing(t Transition) Condition {
	return unknown("ChangeInProgress",
		fmt.Sprintf("a change is under way (%s, in phase %s)", t.Kind, t.Phase))
}
