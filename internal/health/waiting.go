package health

import (
	"fmt"
	"time"
)

// The reasons why a change waits.
const (
	DrainBlocked    = "DrainBlocked"
	DownloadFailed  = "DownloadFailed"
	APIServerSilent = "APIServerSilent"
	WindowClosed    = "WindowClosed"
	PreflightFailed = "PreflightFailed"
	AttemptFailed   = "AttemptFailed" // for another cause
)

// Waiting says why a change waits.
type Waiting struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Owner can remove the cause.
	Owner string    `json:"owner"`
	Since time.Time `json:"since"`
	// NextAttempt is when the service tries again at the latest.
	NextAttempt time.Time `json:"nextAttempt"`
}

// longestCause bounds the cause in the message, which also has times and owner, in bytes.
const longestCause = 600

// noChangeWaiting: every change that the configuration asks for is applied, or under way for the
// first time.
func noChangeWaiting(e Evidence) Condition {
	w := e.Waiting
	if w == nil {
		return holds()
	}
	return fails(w.Owner, w.Reason, fmt.Sprintf("%s; since %s, next attempt by %s; %s can help",
		Clip(joined(w.Message), longestCause), w.Since.UTC().Format(time.RFC3339),
		w.NextAttempt.UTC().Format(time.RFC3339), person(w.Owner)))
}

// person names the people behind an owner.
func person(owner string) string {
	switch owner {
	case OwnerWorkload:
		return "the owner of the workload"
	case OwnerNetwork:
		return "the operator of the network"
	case OwnerCluster:
		return "the operator of the cluster"
	case OwnerAzure:
		return "the owner of the Azure resources"
	case OwnerConfiguration:
		return "the author of the configuration"
	}
	return "the owner of this machine"
}

// lacksDownload returns the condition of a service that a join cannot start without a download.
func lacksDownload(e Evidence) (Condition, bool) {
	w, t := e.Waiting, e.Transition
	if w == nil || w.Reason != DownloadFailed || t == nil || t.Kind != "join" {
		return Condition{}, false
	}
	return fails(w.Owner, w.Reason, joined(w.Message)), true
}
