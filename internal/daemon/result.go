package daemon

import (
	"cmp"
	"context"
	"time"

	"github.com/Azure/AKSFlexNode/internal/transition"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

func (l *loop) ended(ctx context.Context, j *job) {
	j.cancel()
	l.running, l.patience = nil, nil
	l.Told(j.Job)
	if ctx.Err() != nil {
		return
	}
	switch j.Kind {
	case Reconcile:
		l.reconciled(j.outcome)
	case Repair:
		l.repaired(j)
	case Check:
		l.checked(j)
	case Leave:
		l.left(j.outcome)
	}
	l.tell()
}

func (l *loop) reconciled(o transition.Outcome) {
	known := o.Kind == transition.Waits && l.trouble == o.FirstLine()
	l.wantCheck = l.wantCheck || !known
	switch {
	case o.Kind == transition.Done:
		l.failing.Reset()
		l.trouble = ""
	case o.Kind == transition.Waits:
		if !known {
			l.Log.Info("a change waits", "for", o.Err)
		}
		l.failing.Reset()
		l.trouble = o.FirstLine()
		rest := max(time.Until(o.RetryAt), time.Second)
		l.retry = time.After(min(rest, cmp.Or(o.Every, lookAgain)))
	case o.Kind == transition.Left, o.Kind == transition.Deleted:
		l.end = &o
	case l.wantReconcile, l.isDeleted: // a new configuration follows, or the end
		l.Log.Info("the former configuration is not in force", "error", o.Err)
	case o.Kind == transition.Refused:
		l.Log.Error("the configuration does not work; it is tried again when it changes", "error", o.Err)
		l.trouble = "configuration rejected: " + o.FirstLine()
		if o.Every > 0 { // it may also come to fit
			l.unfit = time.After(o.Every)
		}
	default:
		if o.Kind != transition.Busy {
			l.trouble = "trying again: " + o.FirstLine()
		}
		l.retry = time.After(l.pause(o, &l.failing, "cannot reconcile the node"))
	}
}

func (l *loop) pause(o transition.Outcome, failing *wait.Backoff, what string) time.Duration {
	if o.Kind == transition.Busy {
		l.Log.Debug("waiting for another command", "error", o.Err)
		return busyPause
	}
	pause := failing.Next()
	l.Log.Error(what+"; trying again", "error", o.Err, "in", pause)
	return pause
}

// repaired handles the result of a repair. One that was not carried out does not count.
func (l *loop) repaired(j *job) {
	if j.outcome.Kind == transition.Done {
		l.Log.Info("drift repaired", "what", j.Things)
		l.mending.Reset()
		l.wantCheck = true
		return
	}
	pause := l.pause(j.outcome, &l.mending, "cannot repair drift")
	l.mendAfter = time.Now().Add(pause)
	l.nextCheck(pause)
	l.Budget.Return(j.Things)
}

// nextCheck schedules the next check after a pause, unless a hint has scheduled it earlier.
func (l *loop) nextCheck(pause time.Duration) {
	if l.hinted {
		return
	}
	if rest := time.Until(l.mendAfter); rest > 0 {
		pause = min(pause, rest)
	}
	l.next = time.After(pause)
}

func (l *loop) checked(j *job) {
	found := j.finding
	every := cmp.Or(found.Every, checkEvery)
	l.nextCheck(every*3/5 + wait.Jitter(every*2/5)) // a fifth more or less
	switch {
	case j.Err != nil:
		l.Log.Warn("cannot check the node", "error", j.Err)
		return
	case found.Left:
		l.end = &transition.Outcome{Kind: transition.Left}
		return
	case !found.Reconcile:
		l.asking.Reset()
	case l.retry == nil:
		l.retry = time.After(l.asking.Next())
	}
	l.summary = found.Summary
	if len(found.Repair) == 0 || time.Now().Before(l.mendAfter) {
		return
	}
	allowed, refused := l.Budget.Take(found.Repair)
	for _, thing := range refused {
		l.Log.Error("drift keeps coming back and is no longer repaired; find out who changes it",
			"what", thing, "most", l.Budget.Most, "within", l.Budget.Within)
	}
	l.wantRepair = allowed
}

// left handles the result of giving the machine back. It retries what could not be undone.
func (l *loop) left(o transition.Outcome) {
	switch o.Kind {
	case transition.Done:
		l.end = &transition.Outcome{Kind: transition.Deleted}
	case transition.Replaced:
		l.end = &o
	default:
		if o.Kind != transition.Busy {
			l.trouble = "giving the machine back: " + o.FirstLine()
		}
		l.retry = time.After(l.pause(o, &l.failing, "cannot give the machine back"))
	}
}
