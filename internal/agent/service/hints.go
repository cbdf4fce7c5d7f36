package service

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

const (
	// partsPause is the pause before a machine that is not a node yet is checked again.
	partsPause = 15 * time.Second
	// The pauses between watches of the Node object. Its pods end 40 s after its deletion, so the
	// pause stays shorter than that, even after a long outage of the API server.
	watchFirst = time.Second
	maxWatch   = 15 * time.Second
	watchLong  = time.Minute // the duration of a watch when all is well
)

// Changed calls hint whenever something happens to a part of the applied node, until ctx ends. It
// is only a hint to check.
func Changed(ctx context.Context, a *change.Agent, hint func(string)) {
	applied := path.Join(saved.StateDir, "applied")
	for pause := time.Duration(0); wait.Sleep(ctx, pause); {
		files, units := inspect.Parts(ctx, &a.Env)
		if pause = partsPause; len(files) == 0 {
			continue
		}
		within, again := context.WithCancel(ctx)
		a.Machine.Watch(within, append(files, applied), units, func(what string) {
			if what == applied || what == "" {
				again() // watch the new node
			}
			hint(what)
		})
		again()
		pause = 0
	}
}

// Deleted calls hint when the Node is deleted, until ctx ends, and once if it is missing.
func Deleted(ctx context.Context, a *change.Agent, hint func(string)) {
	const what = "the Node object was deleted"
	pauses, told := wait.Backoff{Base: watchFirst, Max: maxWatch}, false
	for pause := time.Duration(0); wait.Sleep(ctx, pause); {
		began := time.Now()
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
		if pause = wait.Jitter(maxWatch / 3); !errors.Is(err, inspect.ErrNoNode) {
			pause = pauses.Next() // the API server also serves others
		}
	}
}
