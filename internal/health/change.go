package health

import (
	"cmp"
	"fmt"
	"time"

	"github.com/Azure/AKSFlexNode/internal/transition"
)

func hostAsConfigured(e Evidence) Condition {
	switch {
	case e.Transition != nil:
		return changing(*e.Transition)
	case !e.Drift.OK():
		return e.Drift.missing()
	case e.Drift.Value == 0:
		return holds()
	}
	differ := fmt.Sprint("differences from the applied configuration on this machine: ", e.Drift.Value)
	const list cure = "`aks-flex-node drift` lists them"
	if e.BudgetExhausted {
		return fails(OwnerMachine, "RepairBudgetExhausted", differ+", which were repaired several "+
			"times and have returned", list,
			"find out what changes them, then run `aks-flex-node drift --repair`")
	}
	return fails(OwnerMachine, "Drift", differ, list, "run `aks-flex-node drift --repair`")
}

func storeIntact(e Evidence) Condition {
	return lacking(e.Damaged.Value, "Damaged", "the files of %s below /opt/aks-flex-node/store "+
		"have changed since they were downloaded and verified", "find out what has changed them, then "+
		"run `aks-flex-node drift --repair`")
}

func configurationAccepted(e Evidence) Condition {
	switch {
	case e.Transition != nil:
		return changing(*e.Transition)
	case e.Rejected == nil:
		return holds()
	}
	r := e.Rejected
	version, at := r.Version, r.At.UTC().Format(time.RFC3339)
	switch {
	case r.ByPolicy:
		return fails(OwnerMachine, RefusedByPolicy, fmt.Sprintf("the policy of this machine has "+
			"refused the configuration %s at %s, and the node still runs the previous one: %s", version,
			at, joined(r.Reason)), "`aks-flex-node policy show` shows the policy")
	case r.Untrusted:
		return fails(OwnerCluster, RevisionNotTrusted, fmt.Sprintf("this machine has refused the "+
			"configuration %s at %s, and the node is unchanged: %s", version, at, joined(r.Reason)),
			"contact the operator of the provider: its store may have been tampered with; if its root "+
				"key has changed, a new configuration URL is needed")
	}
	return fails(OwnerConfiguration, "Rejected", fmt.Sprintf("the configuration %s was rejected at "+
		"%s, and the node still runs the previous one: %s", version, at, r.Reason), "correct it; "+
		"after a failed change, `aks-flex-node bootstrap` tries it again")
}

func changing(t transition.Transition) Condition {
	return unknown("ChangeInProgress",
		fmt.Sprintf("a change is under way (%s, in phase %s)", t.Kind, t.Phase))
}

// RevisionNotTrusted is the reason for an offer that is not signed for this machine, or goes back.
const RevisionNotTrusted = "RevisionNotTrusted"

// RefusedByPolicy is the reason for an offer that the policy of the machine forbids.
const RefusedByPolicy = "RefusedByPolicy"

// The reasons why a change waits.
const (
	DeletionWaits   = "DeletionWaits" // for a person to confirm, as the policy of the machine requires
	DrainBlocked    = "DrainBlocked"
	DownloadFailed  = "DownloadFailed"
	APIServerSilent = "APIServerSilent"
	WindowClosed    = "WindowClosed"
	ChangeHeld      = "ChangeHeld"     // by the provider
	ProviderSilent  = "ProviderSilent" // the request to begin the change was not answered
	PreflightFailed = "PreflightFailed"
	MachinePaused   = "MachinePaused" // by a person
	AttemptFailed   = "AttemptFailed" // for another cause
)

// Waiting describes why a change waits.
type Waiting struct {
	Reason      string    `json:"reason"`
	Message     string    `json:"message"`
	Owner       string    `json:"owner"` // can remove the cause
	Since       time.Time `json:"since"`
	NextAttempt time.Time `json:"nextAttempt"`        // latest time of the next attempt by the service
	Received    string    `json:"received,omitempty"` // the digest of the document
}

// PauseText returns a message with the end of a pause and its reason.
func PauseText(until time.Time, reason string) string {
	text := "the agent starts no change and no repair until " + until.UTC().Format(time.RFC3339)
	if reason != "" {
		text += ": " + Clip(joined(reason), longestCause)
	}
	return text
}

func notPaused(e Evidence) Condition {
	return when(e.Paused != "", OwnerMachine, MachinePaused, e.Paused,
		"run `aks-flex-node resume` to end the pause")
}

// longestCause is the max length in bytes of the cause in a message that also has times and owner.
const longestCause = 600

func noChangeWaiting(e Evidence) Condition {
	if e.Upkeep != nil && e.Upkeep.Polls != nil && e.Upkeep.Polls.Kept != "" {
		effect := "which the policy of this machine ignores: the node is unchanged"
		if e.Upkeep.Polls.Kept == DeletionWaits {
			effect = "and the policy of this machine requires confirmation by an operator"
		}
		return fails(OwnerMachine, e.Upkeep.Polls.Kept, "the flexNodeConfig of this node was deleted, "+
			effect, "run `aks-flex-node unbootstrap` to restore the machine")
	}
	w := e.Waiting
	if w == nil {
		return holds()
	}
	return fails(w.Owner, w.Reason, fmt.Sprintf("%s; since %s, next attempt by %s; %s can help",
		Clip(joined(w.Message), longestCause), w.Since.UTC().Format(time.RFC3339),
		w.NextAttempt.UTC().Format(time.RFC3339), person(w.Owner)))
}

func person(owner string) string {
	return cmp.Or(map[string]string{
		OwnerWorkload:      "the owner of the workload",
		OwnerNetwork:       "the operator of the network",
		OwnerCluster:       "the operator of the cluster",
		OwnerAzure:         "the owner of the Azure resources",
		OwnerConfiguration: "the author of the configuration",
	}[owner], "the owner of this machine")
}

// lacksDownload returns the condition of a service that a join cannot start without a download.
func lacksDownload(e Evidence) (Condition, bool) {
	w, t := e.Waiting, e.Transition
	if w == nil || w.Reason != DownloadFailed || t == nil || t.Kind != transition.Join {
		return Condition{}, false
	}
	return fails(w.Owner, w.Reason, joined(w.Message)), true
}
