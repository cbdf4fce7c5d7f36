package service

import (
	"context"
	"errors"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// The pauses between two watches of the Node object. Its pods end 40 s after it was deleted, so
// even an API server that was down for long is not left alone for longer than that.
const (
	watchFirst = time.Second
	watchMost  = 15 * time.Second
	// watchLong is how long a watch lasts when all is well.
	watchLong = time.Minute
)

// Deleted calls back whenever the Node object is deleted, until ctx ends. That it is missing is
// told once.
func Deleted(ctx context.Context, a *change.Agent, hint func(string)) {
	const what = "the Node object was deleted"
	pauses, told := wait.Backoff{Base: watchFirst, Max: watchMost}, false
	for ctx.Err() == nil {
		began := inspect.Now()
		err := inspect.WaitDeleted(ctx, &a.Env)
		switch {
		case err == nil:
			hint(what)
			pauses.Reset()
			told = true
		case errors.Is(err, inspect.ErrNodeMissing):
			if !told {
				hint(what)
			}
			told = true
		case time.Since(began) >= watchLong:
			pauses.Reset()
			told = false
		}
		pause := wait.Jitter(watchMost / 3)
		if !errors.Is(err, inspect.ErrNoNode) { // else only this machine is asked
			pause = pauses.Next()
		}
		if !wait.Sleep(ctx, pause) {
			return
		}
	}
}
