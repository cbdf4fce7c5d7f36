package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/signing"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// Machine is the part of this machine that Follower needs. One goroutine calls its methods.
type Machine interface {
	Offers() (received, applied config.Resource) // last received and now applied
	// Fetch returns the offered configuration, with its secrets, verified.
	Fetch(ctx context.Context) (bundle []byte, of config.Resource, err error)
	Receive(ctx context.Context, bundle []byte) error // stores it; an *UnusableError is not retried
	// Unusable records the version of a refused offer, and the reason; nil if it was accepted.
	Unusable(version string, why error)
	// Deleted begins to give the machine back and reports whether it does: the owner may forbid that.
	Deleted() (leaves bool)
}

// UnusableError reports that an offer cannot be used, now or later.
type UnusableError struct{ Err error }

func (e *UnusableError) Error() string { return e.Err.Error() }
func (e *UnusableError) Unwrap() error { return e.Err }

// Follower follows a flexNodeConfig. It gives the machine back only for a tombstone with the uid of
// its own resource that two consecutive polls return, and only if its owner allows that.
type Follower struct {
	Resource *Resource
	Machine  Machine
	Root     func() []byte // the root certificate that the machine trusts, in DER; nil for none
	Wait     time.Duration // max time for which the provider may hold a poll; 0 disables that
	Interval time.Duration // between polls until the provider sends another; 0 is 30 s
	// Told receives each answer or failure, and the following pause.
	Told func(answer Answer, err error, pause time.Duration)
	Log  *slog.Logger

	pace    pace
	etag    string
	stones  int
	failing time.Time     // the time of the first of the failing polls
	short   time.Time     // no poll is held until then
	unheld  time.Duration // the time without held polls after the next that fails
}

// Run follows until ctx ends or the machine is given back.
func (f *Follower) Run(ctx context.Context) {
	f.pace.interval = f.Interval
	for pause := f.pace.first(); wait.Sleep(ctx, pause); {
		held, first := f.Wait, f.etag == "" || !f.failing.IsZero()
		if first || f.stones > 0 || time.Now().Before(f.short) {
			held = 0
		}
		answer, err := f.Resource.Poll(ctx, f.etag, held)
		switch {
		case held > 0 && err == nil:
			f.unheld = 0
		case held > 0: // without success, the pause until the next held poll grows
			f.short = time.Now().Add(f.unheld)
			f.unheld = min(max(2*f.unheld, time.Minute), maxInterval)
		}
		if err == nil && answer.Deleted != nil {
			if err = f.genuine(*answer.Deleted); err == nil {
				answer.Waited = false
				pause = f.pace.after(answer)
				f.Told(answer, nil, pause)
				if f.deleted(answer) {
					return
				}
				continue
			}
			f.etag = "" // the next answer describes the offer
			f.Machine.Unusable(answer.Deleted.ConfigVersion, err)
		}
		f.stones = 0
		if err == nil {
			err = f.take(ctx, answer)
		}
		if err != nil && ctx.Err() != nil {
			return // the caller has cancelled it
		}
		// The first poll, also after failures, is never held: a gateway may end those that are. The next
		// one must come soon, or a change would wait.
		answer.Waited = answer.Waited || first && f.etag != "" && f.Wait > 0
		pause = f.next(answer, err)
		f.Told(answer, err, pause)
	}
}

// genuine returns an *UntrustedError unless the resource is deleted and was not restored since.
func (f *Follower) genuine(stone agentapi.Tombstone) error {
	_, err := verify(f.Root(), stone.Signature, signing.Statement{
		Kind: signing.Tombstone, UID: stone.UID, Version: stone.ConfigVersion, Epoch: stone.Epoch,
		Content: []byte(stone.DeletedAt.Format(time.RFC3339Nano)),
	})
	if err != nil {
		return err
	}
	received, applied := f.Machine.Offers()
	is := received
	is.Epoch = stone.Epoch
	return follows(is, received, config.Resource{UID: received.UID, Epoch: applied.Epoch})
}

// deleted handles a tombstone, and reports whether the machine is given back.
func (f *Follower) deleted(answer Answer) (leaves bool) {
	f.stones++
	switch f.stones {
	case 1:
		f.Log.Warn("the resource of this node seems to be deleted; checking again")
		return false
	case 2:
		f.Log.Warn("the resource of this node was deleted", "at", answer.Deleted.DeletedAt)
	}
	return f.Machine.Deleted()
}

// next returns the pause after a poll. It logs the first of several failures, and their end.
func (f *Follower) next(answer Answer, err error) time.Duration {
	if err == nil {
		if !f.failing.IsZero() {
			f.Log.Info("the provider answers again", "after", time.Since(f.failing).Round(time.Second))
		}
		f.failing = time.Time{}
		return f.pace.after(answer)
	}
	if f.failing.IsZero() {
		f.failing = time.Now()
		f.Log.Warn("cannot follow the resource; the node is unchanged", "error", err)
	}
	return f.pace.afterError(err)
}

// take handles an answer. It keeps the ETag once the offer needs no more work.
func (f *Follower) take(ctx context.Context, answer Answer) error {
	received, applied := f.Machine.Offers()
	if v := answer.Version; v != "" && v != received.ConfigVersion && v != applied.ConfigVersion {
		err := f.receive(ctx, received, applied)
		_, unusable := errors.AsType[*UnusableError](err)
		if _, untrusted := errors.AsType[*UntrustedError](err); untrusted || unusable {
			f.Machine.Unusable(v, err)
		}
		if unusable {
			f.Log.Error("the offered configuration is not used", "version", v, "error", err)
		} else if err != nil {
			return err
		}
	} else if v != "" {
		f.Machine.Unusable(v, nil)
	}
	if answer.ETag != "" {
		f.etag = answer.ETag
	}
	return nil
}

func (f *Follower) receive(ctx context.Context, received, applied config.Resource) error {
	bundle, of, err := f.Machine.Fetch(ctx)
	if err != nil {
		return err
	}
	if err := follows(of, received, applied); err != nil {
		return &UnusableError{err}
	}
	return f.Machine.Receive(ctx, bundle)
}

// follows returns an *UntrustedError if an offer cannot follow the received and applied ones.
func follows(o, received, applied config.Resource) error {
	err := after(o, received)
	if err == nil && applied.UID == received.UID { // else applied is of an earlier resource
		err = after(o, applied)
	}
	if err != nil {
		return &UntrustedError{err}
	}
	return nil
}

// after returns an error if an offer cannot follow another.
func after(o, before config.Resource) error {
	switch {
	case before.UID != "" && o.UID != before.UID:
		return fmt.Errorf("it belongs to another resource (uid %s) than this machine (uid %s)",
			shorten(o.UID), before.UID)
	case o.Epoch < before.Epoch:
		return fmt.Errorf("it goes back from epoch %d to %d: an older backup of the provider answers",
			before.Epoch, o.Epoch)
	case older(o.ConfigVersion, before.ConfigVersion):
		return fmt.Errorf("it goes back from version %s to %s", before.ConfigVersion,
			shorten(o.ConfigVersion))
	}
	return nil
}

// older compares two decimal numbers of any length.
func older(a, b string) bool {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return len(a) < len(b) || len(a) == len(b) && a < b
}

const (
	usualInterval = 30 * time.Second // the default poll interval, give or take a third
	leastInterval = 5 * time.Second  // of a provider
	maxInterval   = time.Hour        // of a provider
	again         = time.Second      // the max pause between two polls of which the first was held
)

type pace struct {
	interval time.Duration
	failures int
}

// first returns the pause after a start: machines that start together do not poll together.
func (p *pace) first() time.Duration { return rand.N(min(p.usual(), leastInterval)) } // no secret

func (p *pace) after(a Answer) time.Duration {
	p.failures = 0
	if a.Interval > 0 {
		p.interval = min(max(a.Interval, leastInterval), maxInterval)
	}
	if a.Waited {
		return rand.N(again) // no secret
	}
	return p.usual()*2/3 + rand.N(p.usual()*2/3) // no secret
}

// afterError returns the pause after a failure: twice the last, and at least what the server asks.
func (p *pace) afterError(err error) time.Duration {
	pause := min(p.usual()/6<<min(p.failures, 12), max(maxPause, p.usual()))
	p.failures++
	pause = pause/2 + rand.N(pause/2) // no secret
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		pause = max(pause, refused.Pause)
	}
	return pause
}

func (p *pace) usual() time.Duration { return cmp.Or(p.interval, usualInterval) }
