package daemon

import (
	"cmp"
	"context"
	"time"

	"github.com/Azure/AKSFlexNode/internal/transition"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// result is how a job ended.
type result struct {
	job     job
	finding Finding
	outcome transition.Outcome
}

// ended takes in what a job has brought.
func (l *loop) ended(ctx context.Context, r result) {
	l.running.cancel()
	l.running, l.patience = nil, nil
	l.say(Job{Kind: string(r.job.kind), Things: r.job.things, Ended: true, Err: r.outcome.Err})
	if ctx.Err() != nil {
		return
	}
	switch r.job.kind {
	case reconcile:
		l.reconciled(r.outcome)
	case repair:
		l.repaired(r)
	case check:
		l.checked(r)
	case leave:
		l.left(r.outcome)
	}
}

func (l *loop) reconciled(o transition.Outcome) {
	waits := o.Kind == transition.Waits
	known := waits && l.trouble == transition.FirstLine(o.Err.Error())
	l.wantCheck = l.wantCheck || !known
	switch {
	case o.Kind == transition.Done:
		l.failing.Reset()
		l.trouble = ""
	case waits:
		if !known {
			l.Log.Info("a change waits", "for", o.Err)
		}
		l.failing.Reset()
		l.trouble = transition.FirstLine(o.Err.Error())
		l.again(min(max(time.Until(o.RetryAt), time.Second), cmp.Or(o.Every, lookAgain)))
	case o.Kind == transition.Left, o.Kind == transition.Deleted:
		l.end = &o
	case l.wantReconcile, l.isDeleted: // a new configuration follows, or the end
		l.Log.Info("the former configuration is not in force", "error", o.Err)
	case o.Kind == transition.Busy:
		l.Log.Debug("waiting for another command", "error", o.Err)
		l.again(busyPause)
	case o.Kind == transition.Refused:
		l.Log.Error("the configuration does not work; it is not tried again until it changes",
			"error", o.Err)
		l.trouble = "configuration rejected: " + transition.FirstLine(o.Err.Error())
	default:
		pause := l.failing.Next()
		l.Log.Error("cannot reconcile the node; trying again", "error", o.Err, "in", pause)
		l.trouble = "trying again: " + transition.FirstLine(o.Err.Error())
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
	switch r.outcome.Kind {
	case transition.Done:
		l.Log.Info("drift repaired", "what", r.job.things)
		l.mending.Reset()
		l.wantCheck = true
		return
	case transition.Busy:
		l.Log.Debug("waiting for another command", "error", r.outcome.Err)
		l.mendLater(busyPause)
	default:
		pause := l.mending.Next()
		l.Log.Error("cannot repair drift; trying again", "error", r.outcome.Err, "in", pause)
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
	if r.outcome.Err != nil {
		l.Log.Warn("cannot check the node", "error", r.outcome.Err)
		return
	}
	if r.finding.Left {
		l.end = &transition.Outcome{Kind: transition.Left}
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
func (l *loop) left(o transition.Outcome) {
	switch o.Kind {
	case transition.Done:
		l.end = &transition.Outcome{Kind: transition.Deleted}
		return
	case transition.Replaced:
		l.end = &o
		return
	case transition.Busy:
		l.again(busyPause)
	default:
		pause := l.failing.Next()
		l.Log.Error("cannot give the machine back; trying again", "error", o.Err, "in", pause)
		l.trouble = "giving the machine back: " + transition.FirstLine(o.Err.Error())
		l.again(pause)
	}
	l.tell()
}
