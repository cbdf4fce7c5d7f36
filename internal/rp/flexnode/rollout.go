package flexnode

import (
	"encoding/json"
	"slices"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// Rollout is a row of the store: the states of a cluster's changes, as Admit last returned them.
type Rollout struct {
	Changes []State `json:"changes"`
}

const maxAllowedFailures, defaultAllowance = 1000, 24 * time.Hour

// Allow lets more nodes fail changes until a time. The error is an *arm.Error or Problems.
func (r Rollout) Allow(ask api.AllowVersions, by string, now time.Time) (Rollout, error) {
	var problems Problems
	failures, lasts := max(1, ask.Failures), defaultAllowance
	problems.unless(0 <= ask.Failures && ask.Failures <= maxAllowedFailures, "failures",
		"This must be between 1 and %d.", maxAllowedFailures)
	problems.rolloutTime("for", ask.For, "PT24H", &lasts)
	if err := problems.err(); err != nil {
		return r, err
	}
	next, found := Rollout{slices.Clone(r.Changes)}, false
	for i := range next.Changes {
		s := &next.Changes[i]
		if ask.Change != "" && s.ID != ask.Change || len(s.Failed)+s.Unknown == 0 {
			continue
		}
		s.Allowed, s.AllowedUnknown = len(s.Failed)+s.More+failures-1, s.Unknown+failures-1
		s.By, s.Until = by, now.Add(lasts).UTC()
		found = true
	}
	if !found {
		return r, arm.Errorf(409, "ChangeNotFailed", "Every node of the cluster that has tried this "+
			"change is well: see changes in summarizeFlexNodes.")
	}
	return next, nil
}

// maxSettings limits the shown settings of a change, maxSetting the length of each.
const maxSettings, maxSetting = 20, 200

// Shown returns the changes as callers see them.
func (r Rollout) Shown() []api.RolloutChange {
	shown := []api.RolloutChange{}
	for _, s := range r.Changes {
		one := api.RolloutChange{
			Change: s.ID, Settings: append([]string{}, s.Settings...), Since: s.Since.UTC(),
			Waiting: s.Waiting, Trying: s.Trying, Good: s.Good, Failed: len(s.Failed) + s.More,
			Unknown: s.Unknown, Held: s.Hold, AllowedBy: s.By,
		}
		if s.By != "" {
			one.AllowedUntil = &s.Until
		}
		shown = append(shown, one)
	}
	return shown
}

// Attempt is the last change that a node was admitted to. It holds a slot until Ready or an
// Outcome.
type Attempt struct {
	// Change is the id of the change; "" for a node that was sent back before it was Ready.
	Change   string `json:"change,omitempty"`
	Revision int64  `json:"revision"`
	// The slot was given at Since, for this change at At; an agent that has begun is done by Until
	// (Begin, judge); the node was first Ready at Ready; the Outcome was known at Ended.
	Since   time.Time `json:"since"`
	At      time.Time `json:"at"`
	Until   time.Time `json:"until,omitzero"`
	Ready   time.Time `json:"ready,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	Outcome string    `json:"outcome,omitempty"`
}

// The outcomes of an attempt.
const (
	Good    = "Good"    // applied, Ready and heard for the soak
	Bad     = "Bad"     // reported as failed, or not Ready while its agent is heard
	Unknown = "Unknown" // neither by the deadline
)

func (a *Attempt) open() bool { return a != nil && a.Outcome == "" }

// pending reports whether the outcome may still change.
func (a *Attempt) pending() bool { return a.open() || a != nil && a.Outcome == Unknown }

// holds reports whether the node of an attempt holds a slot.
func (a *Attempt) holds() bool { return a.open() && a.Ready.IsZero() }

// leftOutAfter is the number of failed changes after which a node is left out: it is admitted to no
// change any more and its failures do not count, so that one broken machine stops no fix.
const leftOutAfter = 3

// Candidate is a node as Admit sees it.
type Candidate struct {
	Key, UID string
	// Speaker is the identity in Azure that reports for the node; "" for a machine with a key.
	Speaker string
	// Desired is the revision that its owner wants, Assigned the one that its agent is offered,
	// Applied the one that it reports to run, Failed the one that it reports to have failed; 0 for
	// none. Refused is the desired revision if the node has failed it before.
	Desired, Assigned, Applied, Failed, Refused int64
	// Change is the change from Applied to Desired.
	Change Change
	// Restored reports that it runs a revision that the store does not know (Node.Lost).
	Restored bool
	// Follows reports that its agent follows the resource, Heard that it was heard of lately, Open
	// that it is in its window and not paused, Insisted that a person wants this revision, Kept
	// that Applied can be offered again, ByHand that a person has rolled it back on the machine.
	Follows, Heard, Open, Insisted, Kept, ByHand bool
	// Same reports that Assigned does not run yet, and differs from Desired in nothing that disturbs.
	Same bool
	// Ready is the status of the Node's Ready condition, "" for none; False only after a while.
	Ready   string
	Attempt *Attempt
	// Asks reports that its agent asks to begin Desired, so it carries out no change.
	Asks bool
	// FailedChanges holds the last changes that it has failed, since the last good one.
	FailedChanges []string
}

// Offered reports whether a node is offered its desired revision, and Admit has nothing to judge
// until its agent reports again: Admit does not need its Change.
func (c Candidate) Offered() bool {
	return c.Assigned == c.Desired && c.Attempt == nil && !c.Asks && c.Failed != c.Desired &&
		c.Refused != c.Desired
}

func (c Candidate) leftOut() bool { return len(c.FailedChanges) >= leftOutAfter && !c.Insisted }

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
	HoldRefused:    "this node has failed the configuration",
	HoldLeftOut:    "this node has failed too many changes; its owner must request one, with rollback",
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
	switch change := b.Rollout.held(b.Change); {
	case b.Policy.Paused:
		held = HeldPaused
	case n.Desired.UpgradePolicy.Paused:
		held = HoldNodePaused
	case change != "" && n.Insisted != n.Revision:
		held = change
	case !open, !b.Now.Before(at.At.Add(b.Policy.Deadline)): // others have waited
		held = HoldNoSlot
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

// held returns the hold that Admit last found for a change; "" for none.
func (r Rollout) held(c Change) string {
	for _, s := range r.Changes {
		if s.ID == c.ID {
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
	err := json.Unmarshal(encode(whole["agent"]), &agent)
	return agent.Disruption() + beginMargin, err
}
