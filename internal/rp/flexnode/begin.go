package flexnode

import (
	"encoding/json"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// Reasons that an agent may not begin, besides the holds of a change.
const (
	HoldSuperseded = "Superseded" // another revision is desired, or on offer
	HoldRestored   = "Restored"   // the store was restored, and does not know what the node runs
	HoldRefused    = "Refused"    // the node has failed the revision
	HoldLeftOut    = "LeftOut"    // the node has failed too many changes
	HoldNoSlot     = "NoSlot"     // the budget has no room
	HoldNodePaused = "NodePaused" // its owner has paused the node
)

// holds explains each reason.
var holds = map[string]string{
	HoldSuperseded: "the desired configuration or the offered one has changed",
	HoldRestored: "the provider was restored from a backup and does not know the configuration of " +
		"this node; its owner must change it",
	HoldRefused: "this node has failed the configuration",
	HoldLeftOut: "this node has failed too many changes; its owner must request one, with " +
		"rollback",
	HoldNoSlot:     "the maximum number of nodes of the cluster is being changed already",
	HoldNodePaused: "its owner has paused this node (upgradePolicy.paused)",
	HeldPaused:     "the changes of the cluster are paused",
	HeldCanary:     "the first nodes have failed the change",
	HeldFailed:     "too many nodes have failed the change",
	HeldUnknown:    "too many nodes have not answered after the change",
}

const (
	// askAgain is the pause before a held agent asks again, unless a poll releases it earlier.
	askAgain = time.Minute
	// beginMargin is added to the time that an agent may take.
	beginMargin = 5 * time.Minute
)

// Beginning holds the arguments of Node.Begin.
type Beginning struct {
	// Asked is the revision that the agent asks to begin, Applied the one that it reports.
	Asked, Applied int64
	// Change is from Applied to the desired revision, Lasts the time that the agent may take for it.
	Change Change
	Lasts  time.Duration

	Policy  Policy
	Rollout Rollout
	Now     time.Time
}

// Begin answers an agent that asks whether it may restart or drain for a revision, and returns the
// changed node. It gives no slot: only Admit does. A node that has a slot keeps it for the granted
// time. An agent that asks again has not begun, or has stopped.
func (n Node) Begin(b Beginning) (Node, api.ChangeBegun) {
	at := n.Attempt
	open := at.open() && at.Revision == n.Revision
	held := ""
	switch {
	case n.Lost(b.Applied) != 0:
		held = HoldRestored
	case b.Asked != n.Revision || b.Asked != n.Assigned:
		held = HoldSuperseded
	case n.Failed == n.Revision:
		held = HoldRefused
	case !open && b.Change.ID == "":
		return n, granted(b.Lasts) // it disturbs nothing
	case !open && n.leftOut():
		held = HoldLeftOut
	}
	if held != "" {
		return n, hold(held)
	}
	switch change := b.Rollout.held(at); {
	case b.Policy.Paused:
		held = HeldPaused
	case n.Desired.UpgradePolicy.Paused:
		held = HoldNodePaused
	case !open:
		held = HoldNoSlot
	case change != "" && n.Insisted != n.Revision:
		held = change
	case !b.Now.Before(at.At.Add(b.Policy.Deadline)):
		held = HoldNoSlot // others have waited
	}
	n.Asks = 0
	answer, until := granted(b.Lasts), b.Now.Add(b.Lasts)
	if held != "" {
		n.Asks = n.Revision
		answer, until = hold(held), time.Time{}
	}
	if open {
		now := *at
		now.Until = until
		n.Attempt = &now
	}
	return n, answer
}

func granted(lasts time.Duration) api.ChangeBegun {
	return api.ChangeBegun{GrantedSeconds: int(lasts / time.Second)}
}

func hold(why string) api.ChangeBegun {
	return api.ChangeBegun{Hold: why, Reason: holds[why], RetryAfter: int(askAgain / time.Second)}
}

// held returns the hold that Admit last found for the change of an attempt; "" for none.
func (r Rollout) held(a *Attempt) string {
	for _, s := range r.Changes {
		if a != nil && s.ID == a.Change {
			return s.Hold
		}
	}
	return ""
}

// Released reports whether an agent that was held may begin now.
func (n Node) Released() bool {
	return n.Asks != 0 && n.Asks == n.Revision && n.Attempt.open() && n.Attempt.Revision == n.Asks
}

// Lasts returns the time that an agent may take to drain and become Ready, and a margin.
func Lasts(whole map[string]any) (time.Duration, error) {
	var agent config.Agent
	text, err := json.Marshal(whole["agent"])
	if err == nil {
		err = json.Unmarshal(text, &agent)
	}
	return agent.Disruption() + beginMargin, err
}
