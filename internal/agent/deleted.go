package agent

import (
	"context"
	"errors"
	"time"

	"github.com/Azure/AKSFlexNode/internal/kube"
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
func (a *Agent) Deleted(ctx context.Context, hint func(string)) {
	const what = "the Node object was deleted"
	pauses, told := wait.Backoff{Base: watchFirst, Max: watchMost}, false
	for ctx.Err() == nil {
		began := now()
		err := a.watchNode(ctx)
		switch {
		case err == nil:
			hint(what)
			pauses.Reset()
			told = true
		case kube.NodeMissing(err):
			if !told {
				hint(what)
			}
			told = true
		case time.Since(began) >= watchLong:
			pauses.Reset()
			told = false
		}
		pause := wait.Jitter(watchMost / 3)
		if !errors.Is(err, errNoNode) { // else only this machine is asked
			pause = pauses.Next()
		}
		if !wait.Sleep(ctx, pause) {
			return
		}
	}
}

// watchNode returns when the Node object is deleted.
func (a *Agent) watchNode(ctx context.Context) error {
	h, err := a.openReadOnly(ctx)
	if err != nil {
		return err
	}
	if h.saved.Applied == nil || !h.saved.Joined() {
		return errNoNode
	}
	c := h.saved.ConfigOf(h.saved.Applied)
	client, err := h.kubeletClient(ctx, c, h.saved.At())
	if err != nil {
		return err
	}
	defer client.Close()
	return client.WaitDeleted(ctx, c.Agent.NodeName)
}
