package credential

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Tokens creates and deletes the Secrets of bootstrap tokens in a cluster.
type Tokens interface {
	// Create creates the Secret of a credential, unless an earlier attempt did. It fails with
	// ErrTaken if a Secret of another owner has that name. told is the message for callers about an
	// error, without the addresses and files that may be in that.
	Create(ctx context.Context, c store.Credential, key, token string) (told string, err error)
	// Remove deletes the Secret of a credential, if there is one.
	Remove(ctx context.Context, c store.Credential) error
}

// ErrTaken is returned if a Secret of another owner has the id of a token.
var ErrTaken = errors.New("a Secret has the id of the bootstrap token")

const (
	// steps limits the reads of a credential that others change.
	steps = 20
	// waiting is the pause before a retry for a credential whose node cannot be rendered yet. A
	// change of the node's row ends it.
	waiting = 30 * time.Second
)

// Step does the next work for a credential, and returns the time of its next call if nothing
// changes; zero for never. It must also be called when the row of the credential or of its node has
// changed, and again, after a pause, when it has failed. It may be killed anywhere, and run several
// times at once: its effects in the cluster are idempotent, and its writes depend on its reads and
// on fence.
func (s *Service) Step(
	ctx context.Context, key string, tokens Tokens, fence store.Condition,
) (time.Time, error) {
	w := worker{s, tokens, fence}
	for range steps {
		x, err := s.get(ctx, key)
		if err != nil || !x.row.Exists() {
			return time.Time{}, err
		}
		if next, err := w.step(ctx, x); !errors.Is(err, errMoved) {
			return next, err
		}
	}
	return time.Time{}, fmt.Errorf("cannot advance the credential of %s: others keep changing it", key)
}

// worker works on the credentials of a cluster.
type worker struct {
	*Service
	tokens Tokens
	fence  store.Condition
}

func (w worker) step(ctx context.Context, x subject) (time.Time, error) {
	state, next := w.due(x)
	if state != x.row.Value.State {
		return time.Time{}, w.expire(ctx, x.key)
	}
	switch state {
	case store.Pending:
		if x.node.Value.Assigned == 0 {
			err := w.problem(ctx, x.key,
				"Its node has no configuration yet: "+
					cmp.Or(x.node.Value.Reason, "its cluster has not been reached")+".")
			return earliest(next, w.now().Add(waiting)), err
		}
		return next, w.provision(ctx, x)
	case store.Live:
		return next, w.rerender(ctx, x)
	case store.Consumed:
		return next, w.Delivery.Remove(ctx, x.key)
	}
	err := w.remove(ctx, x)
	if err != nil { // of a cluster that does not answer: the token ends
		next = x.row.Value.Expires
	}
	return next, err
}

// due is Due of a credential. One that a machine may still join with ends by the slowest clock,
// since this one may be ahead.
func (w worker) due(x subject) (state string, next time.Time) {
	c, lead := x.row.Value, time.Duration(0)
	if w.Lead != nil && (c.State == store.Pending || c.State == store.Live) {
		lead = w.Lead()
	}
	state, next = Due(c, x.wanted, w.now().Add(-lead))
	if !next.IsZero() {
		next = next.Add(lead)
	}
	return state, next
}

// update makes a change that depends on the ownership of the cluster; the zero Condition is no
// fence.
func (w worker) update(
	ctx context.Context, what, key string, decide func(*store.View, subject) error,
) error {
	ahead := []string{w.Store.Credentials.Key(key)}
	_, err := w.Store.Update(ctx, what, ahead, func(v *store.View) error {
		if w.fence.Key != "" {
			v.Fence(w.fence)
		}
		return decide(v, w.in(v, key))
	})
	return err
}

// edit changes the row of a credential. with changes it and reports whether to write it.
func (w worker) edit(
	ctx context.Context, what, key string, with func(*store.Credential) bool,
) error {
	return w.update(ctx, what, key, func(v *store.View, x subject) error {
		if c := x.row.Value; x.row.Exists() && with(&c) {
			return w.Store.Credentials.Put(v, key, c)
		}
		return nil
	})
}

// expire writes that a credential must be revoked, because it has expired or is not wanted any
// more.
func (w worker) expire(ctx context.Context, key string) error {
	err := w.update(ctx, "credential revoked", key, func(v *store.View, x subject) error {
		c := x.row.Value
		state, _ := w.due(x)
		if state == c.State {
			return nil
		}
		if c.State == store.Pending {
			v.Fail(w.endNode(v, x))
		}
		return w.move(v, key, c, state)
	})
	return cmp.Or(err, errMoved)
}

// problem records the reason that a credential is not Live. Callers see it (endNode), so it is in
// the provider's words; the caller of Step logs the error itself.
func (w worker) problem(ctx context.Context, key, problem string) error {
	return w.edit(ctx, "problem noted", key, func(c *store.Credential) bool {
		changes := c.State == store.Pending && c.Problem != problem
		c.Problem = problem
		return changes
	})
}
