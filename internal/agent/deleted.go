package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/Azure/AKSFlexNode/internal/kube"
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
	pause, told := watchFirst, false
	for ctx.Err() == nil {
		began := now()
		err := a.watchNode(ctx)
		switch {
		case err == nil:
			hint(what)
			pause, told = watchFirst, true
		case kube.NodeMissing(err):
			if !told {
				hint(what)
			}
			pause, told = min(2*pause, watchMost), true
		case time.Since(began) >= watchLong:
			pause, told = watchFirst, false
		case errors.Is(err, errNoNode):
			pause = watchMost / 3 // only this machine is asked
		default:
			pause = min(2*pause, watchMost)
		}
		if !sleep(ctx, pause/2+rand.N(pause)) {
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
