package kube

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// longestWait bounds a wait whose context has no deadline.
const longestWait = time.Hour

var errTooLong = errors.New("gave up after " + longestWait.String())

// withDeadline returns ctx, with a deadline if it has none.
func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, longestWait, errTooLong)
}

// pause waits for a random time around d, and tells whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
