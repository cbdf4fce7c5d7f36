package health

import (
	"slices"
	"time"
)

// nodeObserved: what could not be observed is Unknown in the conditions that depend on it, which
// make no node unhealthy.
func nodeObserved(e Evidence) Condition {
	switch {
	case !e.Observed.Asked:
		return notAsked()
	case e.Observed.Err != nil:
		return fails(OwnerMachine, "NotObserved", "cannot find out all of how this machine is: "+
			oneLine(e.Observed.Err)+"; see whether `systemctl status` answers, and `dmesg` for errors of "+
			"a disk")
	}
	return holds()
}

// Unchecked returns the conditions of the last check after one that has failed: NodeObserved is
// False, and nothing is known of the others since.
func Unchecked(last []Condition, why error, at time.Time) []Condition {
	c := fails(OwnerMachine, "CheckFailed", Clip("cannot check this node: "+oneLine(why)+"; see "+
		"`journalctl -u aks-flex-node-agent`", longestMessage))
	c.Type, c.Since = NodeObserved, at.UTC().Truncate(time.Second)
	after := slices.Clone(last)
	for i := range after {
		if after[i].Type == NodeObserved {
			after[i] = c
		}
	}
	return Merge(last, after)
}
