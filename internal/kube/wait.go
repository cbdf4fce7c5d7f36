package kube

import (
	"context"
	"errors"
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
