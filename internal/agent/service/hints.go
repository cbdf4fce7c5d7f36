package service

import (
	"context"
	"path"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// watchPause is the pause before a machine that is no node yet is looked at again.
const watchPause = 15 * time.Second

// Changed calls back whenever something happens to what the applied node is made of, until ctx
// ends: a file that is changed, a unit that ends. It is a hint to look, and finds nothing itself.
func Changed(ctx context.Context, a *change.Agent, hint func(string)) {
	for ctx.Err() == nil {
		files, units := inspect.Parts(ctx, &a.Env)
		if len(files) > 0 {
			within, again := context.WithCancel(ctx)
			applied := path.Join(saved.StateDir, "applied")
			a.Machine.Watch(within, append(files, applied), units, func(what string) {
				if what == applied || what == "" {
					again() // another node is to be watched
				}
				hint(what)
			})
			again()
			continue
		}
		if !wait.Sleep(ctx, watchPause) {
			return
		}
	}
}
