package agent

import (
	"context"
	"path"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// watchPause is the pause before a machine that is no node yet is looked at again.
const watchPause = 15 * time.Second

// Changed calls back whenever something happens to what the applied node is made of, until ctx
// ends: a file that is changed, a unit that ends. It is a hint to look, and finds nothing itself.
func (a *Agent) Changed(ctx context.Context, hint func(string)) {
	for ctx.Err() == nil {
		files, units := a.parts(ctx)
		if len(files) > 0 {
			within, again := context.WithCancel(ctx)
			applied := path.Join(saved.StateDir, string(generation.Applied))
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

// parts are the files and units of the node that is applied; none while there is none.
func (a *Agent) parts(ctx context.Context) (files, units []string) {
	h, err := a.openReadOnly(ctx)
	if err != nil || h.saved.Applied == nil {
		return nil, nil
	}
	for _, item := range node.Bind(h.saved.Applied.Node, h.saved.Bindings.Bindings) {
		name := item.Resource.Key().Name()
		switch item.Resource.(type) {
		case state.Unit:
			units = append(units, name)
		case state.File, state.Link, state.Dir:
			files = append(files, name)
		}
	}
	return files, units
}
