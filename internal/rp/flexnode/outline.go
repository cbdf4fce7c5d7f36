package flexnode

import "strconv"

// Wanted holds the values of a node that are read without its row. Many nodes have the same.
type Wanted struct {
	State string // provisioningState, "" is Succeeded
	// Joining reports that the node has a credential, Second that another machine asked to be it,
	// Diagnose that a diagnosis is pending, Paused that its owner has paused it.
	Joining, Second, Diagnose, Paused bool
	// Failed reports that it failed its desired revision, Trying that it tries one, Asks that its
	// agent asks to begin one.
	Failed, Trying, Asks bool
}

// WantedOf returns the values of a node.
func WantedOf(n Node) Wanted {
	return Wanted{
		State: n.State, Joining: n.Credential != "", Second: n.Second != nil,
		Diagnose: n.Diagnose != nil, Paused: n.Desired.UpgradePolicy.Paused,
		Failed: n.Failed != 0 && n.Failed == n.Revision, Trying: n.Attempt.pending(),
		Asks: n.Asks != 0 && n.Asks == n.Revision,
	}
}

// Unsettled reports whether Admit may have something to do for a node with these revisions: the
// desired and the offered one, and those that its agent reports to run and to have failed.
func (w Wanted) Unsettled(revision, assigned, applied, failed int64) bool {
	switch {
	case w.Trying, w.Failed && applied == revision, w.Asks && applied != revision:
		return true
	case w.Failed:
		return assigned == revision && applied != 0
	}
	return assigned != revision || failed != 0 && failed == revision
}

// Failed returns the version that the agent reports to have failed; 0 if it reports none.
func (s Status) Failed() int64 {
	if c := s.Report.Config; c != nil && c.Failed != nil {
		return reportedVersion(c.Failed.Version)
	}
	return 0
}

// Applied returns the version that the agent reports to run; 0 if it reports none.
func (s Status) Applied() int64 { return reportedVersion(s.Report.AppliedConfigVersion) }

// reportedVersion reads a configVersion of a checked report; 0 for none.
func reportedVersion(text string) int64 {
	version, _ := strconv.ParseInt(text, 10, 64)
	return version
}
