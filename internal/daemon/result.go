package daemon

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/Azure/AKSFlexNode/internal/wait"
)

// result is how a job ended.
type result struct {
	job     job
	finding Finding
	err     error
}

// ended takes in what a job has brought.
func (l *loop) ended(ctx context.Context, r result) {
	l.running.cancel()
	l.running, l.patience = nil, nil
	l.say(Job{Kind: string(r.job.kind), Things: r.job.things, Ended: true, Err: r.err})
	if ctx.Err() != nil {
		return
	}
	switch r.job.kind {
	case reconcile:
		l.reconciled(r.err)
	case repair:
		l.repaired(r)
	case check:
		l.checked(r)
	case leave:
		l.left(r.err)
	}
}

func (l *loop) reconciled(err error) {
	_, busy := errors.AsType[*BusyError](err)
	_, final := errors.AsType[*FinalError](err)
	later, isLater := errors.AsType[*LaterError](err)
	known := isLater && l.trouble == later.Error()
	l.wantCheck = l.wantCheck || !known
	switch {
	case err == nil:
		l.failing.Reset()
		l.trouble = ""
	case isLater:
		if !known {
			l.Log.Info("a change waits", "for", later)
		}
		l.failing.Reset()
		l.trouble = later.Error()
		l.again(min(max(time.Until(later.At), time.Second), cmp.Or(later.Every, lookAgain)))
	case errors.Is(err, ErrLeft), errors.Is(err, ErrDeleted):
		l.err = err
	case l.wantReconcile, l.isDeleted: // a new configuration follows, or the end
		l.Log.Info("the former configuration is not in force", "error", err)
	case busy:
		l.Log.Debug("waiting for another verb", "error", err)
		l.again(busyPause)
	case final:
		l.Log.Error("the configuration does not work; it is not tried again until it changes",
			"error", err)
		l.trouble = "configuration rejected: " + FirstLine(err.Error())
	default:
		pause := l.failing.Next()
		l.Log.Error("cannot reconcile the node; trying again", "error", err, "in", pause)
		l.trouble = "trying again: " + FirstLine(err.Error())
		l.again(pause)
	}
	l.tell()
}

// again reconciles after a pause.
func (l *loop) again(pause time.Duration) {
	l.retry.Reset(pause)
	l.retrying = true
}

// repaired takes in how a repair ended. One that was not carried out does not count, and what is
// still to be repaired is found by the check that follows it.
func (l *loop) repaired(r result) {
	_, busy := errors.AsType[*BusyError](r.err)
	switch {
	case r.err == nil:
		l.Log.Info("drift repaired", "what", r.job.things)
		l.mending.Reset()
		l.wantCheck = true
		return
	case busy:
		l.Log.Debug("waiting for another verb", "error", r.err)
		l.mendLater(busyPause)
	default:
		pause := l.mending.Next()
		l.Log.Error("cannot repair drift; trying again", "error", r.err, "in", pause)
		l.mendLater(pause)
	}
	l.Budget.Return(r.job.things)
}

// mendLater has the next repair wait, and a check come then.
func (l *loop) mendLater(pause time.Duration) {
	l.mendAfter = time.Now().Add(pause)
	l.nextCheck(pause)
}

// nextCheck has the next check come after a pause, unless a hint brings it, or a repair waits for
// it, before.
func (l *loop) nextCheck(pause time.Duration) {
	if l.hinted {
		return
	}
	if rest := time.Until(l.mendAfter); rest > 0 {
		pause = min(pause, rest)
	}
	l.next.Reset(pause)
}

func (l *loop) checked(r result) {
	every := cmp.Or(r.finding.Every, checkEvery)
	l.nextCheck(every*3/5 + wait.Jitter(every*2/5)) // a fifth more or less
	if r.err != nil {
		l.Log.Warn("cannot check the node", "error", r.err)
		return
	}
	if r.finding.Left {
		l.err = ErrLeft
		return
	}
	l.summary = r.finding.Summary
	l.tell()
	switch {
	case !r.finding.Reconcile:
		l.asking.Reset()
	case !l.retrying:
		l.again(l.asking.Next())
	}
	if len(r.finding.Repair) == 0 || time.Now().Before(l.mendAfter) {
		return
	}
	allowed, refused := l.Budget.Take(r.finding.Repair)
	for _, thing := range refused {
		l.Log.Error("drift keeps coming back and is no longer repaired; find out who changes it",
			"what", thing, "most", l.Budget.Most, "within", l.Budget.Within)
	}
	l.wantRepair = allowed
}

// left takes in how giving the machine back has ended. What could not be undone is tried again.
func (l *loop) left(err error) {
	_, busy := errors.AsType[*BusyError](err)
	switch {
	case err == nil:
		l.err = ErrDeleted
		return
	case errors.Is(err, ErrReplaced):
		l.err = err
		return
	case busy:
		l.again(busyPause)
	default:
		pause := l.failing.Next()
		l.Log.Error("cannot give the machine back; trying again", "error", err, "in", pause)
		l.trouble = "giving the machine back: " + FirstLine(err.Error())
		l.again(pause)
	}
	l.tell()
}
