package daemon

import (
	"time"

	"github.com/Azure/AKSFlexNode/internal/transition"
)

// The loop's times. Those that reach the cluster are spread, so that a thousand machines that came
// up together do not ask together.
const (
	checkEvery = time.Minute
	pollEvery  = 5 * time.Second // the configuration file
	busyPause  = 5 * time.Second
	// The pauses after failures: retryFirst doubles up to retryMost.
	retryFirst = 5 * time.Second
	retryMost  = transition.RetryWithin * 2 / 3 // Backoff adds up to a half
	hintPause  = time.Second                    // hints come in swarms
	// hintMost is the longest pause before a check, while hints do not end.
	hintMost = 8 * time.Second
	// lookAgain is the longest rest before a time that is waited for: the clock may be set meanwhile.
	lookAgain = 10 * time.Minute
	// stall is how long a worker may make no progress: longer than any single wait of it, which
	// TestNoWaitIsAStall adds up.
	stall = 150 * time.Second
	// feeds is how often the watchdog is fed in each of its intervals.
	feeds = 4
	// checkMost bounds a check, repairMost a repair, and stopMost the wait for a worker that is
	// told to stop: systemd waits for a minute (TimeoutStopSec).
	checkMost  = time.Minute
	repairMost = 20 * time.Minute
	stopMost   = 45 * time.Second
	// proofMost is how long a proof may take that a new configuration waits for.
	proofMost = 5 * time.Minute
)
