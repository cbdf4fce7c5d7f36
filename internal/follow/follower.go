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

// Machine is this machine, as far as following needs it. Its methods are called by one goroutine.
type Machine interface {
	// Offers are the resources that the machine has received last and that it runs on.
	Offers() (received, applied config.Resource)
	// Fetch returns the configuration that is on offer, with its secrets, verified.
	Fetch(ctx context.Context) (bundle []byte, of config.Resource, err error)
	// Receive puts a configuration on disk. An *UnusableError is not tried again.
	Receive(ctx context.Context, bundle []byte) error
	// Unusable receives the version of an offer that is not received, and why; nil if it is.
	Unusable(version string, why error)
	// Deleted gives the machine back, and reports whether it does: its owner may forbid that.
	Deleted() (leaves bool)
}

// UnusableError tells that an offer cannot be used, now or later.
type UnusableError struct{ Err error }

func (e *UnusableError) Error() string { return e.Err.Error() }
func (e *UnusableError) Unwrap() error { return e.Err }

// Follower follows a flexNodeConfig. A machine is given back only for a tombstone with the uid of
// its own resource, seen by two polls one after the other, and only if its owner allows that.
type Follower struct {
	Resource *Resource
	Machine  Machine
	// Root returns the root certificate that the machine trusts, in DER; nil for none.
	Root     func() []byte
	Wait     time.Duration // for how long the provider may hold a poll back; 0 polls without that
	Interval time.Duration // between polls until the provider says another; 0 is 30 s
	// Told receives each answer or failure, and the pause that follows.
	Told func(answer Answer, err error, pause time.Duration)
	Log  *slog.Logger

	pace    pace
	etag    string
	stones  int
	failing time.Time // since when no poll has been answered
}

// Run follows until ctx ends or the resource was deleted.
func (f *Follower) Run(ctx context.Context) {
	f.pace.interval = f.Interval
	for pause := f.pace.first(); wait.Sleep(ctx, pause); {
		held := f.Wait
		if f.stones > 0 {
			held = 0
		}
		answer, err := f.Resource.Poll(ctx, f.etag, held)
		if err == nil && answer.Deleted != nil {
			err = f.genuine(*answer.Deleted)
		}
		if err == nil && answer.Deleted != nil {
			answer.Waited = false
			pause = f.pace.after(answer)
			f.Told(answer, nil, pause)
			if f.deleted(answer) {
				return
			}
			continue
		}
		f.stones = 0
		first := f.etag == ""
		if err == nil {
			err = f.take(ctx, answer)
		} else if answer.Deleted != nil {
			f.etag = "" // the next answer tells what is on offer
			f.Machine.Unusable(answer.Deleted.ConfigVersion, err)
		}
		if err != nil && ctx.Err() != nil {
			return // it has not failed: the caller has ended it
		}
		// The first poll is never held back. The next one is to be soon, or a change would wait.
		answer.Waited = answer.Waited || first && f.etag != "" && f.Wait > 0
		pause = f.next(answer, err)
		f.Told(answer, err, pause)
	}
}

// genuine is an *UntrustedError unless the resource is deleted, and no restore has undone that.
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

// deleted deals with a tombstone, and reports whether the machine is given back.
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

// next is the pause after a poll. A failure is logged when it begins, and when it is over.
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

// take deals with an answer. The ETag is kept once nothing is left to do about the offer.
func (f *Follower) take(ctx context.Context, answer Answer) error {
	received, applied := f.Machine.Offers()
	if v := answer.Version; v != "" && v != received.ConfigVersion && v != applied.ConfigVersion {
		err := f.receive(ctx, received, applied)
		if _, untrusted := errors.AsType[*UntrustedError](err); untrusted {
			f.Machine.Unusable(v, err)
		}
		if _, unusable := errors.AsType[*UnusableError](err); unusable {
			f.Log.Error("the offered configuration is not used", "version", v, "error", err)
			f.Machine.Unusable(v, err)
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

// follows is an *UntrustedError if an offer cannot come after what a machine has received and runs.
func follows(o, received, applied config.Resource) error {
	err := after(o, received)
	if err == nil && applied.UID == received.UID { // else it is of a resource before
		err = after(o, applied)
	}
	if err != nil {
		return &UntrustedError{err}
	}
	return nil
}

// after is an error if an offer cannot come after another.
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
	// usualInterval is the interval of polls without another, give or take a third.
	usualInterval = 30 * time.Second
	// The least and the most that a provider may say.
	leastInterval = 5 * time.Second
	maxInterval   = time.Hour
	// again is the most that is rested between two polls of which the first was held back.
	again = time.Second
)

type pace struct {
	interval time.Duration
	failures int
}

// first is the pause after a start: machines that came up together do not ask together.
func (p *pace) first() time.Duration {
	return rand.N(p.usual() * 4 / 3) // no secret
}

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

// afterError is the pause after a failure: longer each time, and at least what the server asks for.
func (p *pace) afterError(err error) time.Duration {
	pause := min(p.usual()<<min(p.failures, 10), max(maxPause, p.usual()))
	p.failures++
	pause = pause*2/3 + rand.N(pause/3) // no secret
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		pause = max(pause, refused.Pause)
	}
	return pause
}

func (p *pace) usual() time.Duration { return cmp.Or(p.interval, usualInterval) }
