package service

import (
	"cmp"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/daemon"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/progress"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// mostEvents is how many events are kept.
const mostEvents = 20

// Live is what the running service does and has counted. All methods may be called by many
// goroutines; those of a nil one do nothing.
type Live struct {
	mu   sync.Mutex
	work inspect.Work
	// status is what the last check has found; nil before there was one.
	status *inspect.Status
	tally  tally
	// scraped serves the metrics.
	scraped scraped
}

// tally is what is counted since the service began.
type tally struct {
	polls       map[string]int // by result
	checks      map[string]int // by result
	repairs     map[string]int // by kind
	events      map[string]int // by kind, of drift that was found
	transitions map[ended]int
	took        map[transition.Kind]time.Duration
}

type ended struct {
	kind   transition.Kind
	result string
}

// NewLive begins to count.
func NewLive(version string) *Live {
	began := inspect.Now()
	return &Live{
		work: inspect.Work{Version: version, PID: os.Getpid(), Started: began, Job: "rest", Since: began},
		tally: tally{
			polls: map[string]int{}, checks: map[string]int{}, repairs: map[string]int{},
			events: map[string]int{}, transitions: map[ended]int{},
			took: map[transition.Kind]time.Duration{},
		},
	}
}

// update changes what is known.
func (l *Live) update(change func()) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// Job is told by the daemon what its worker does.
func (l *Live) Job(j daemon.Job) {
	l.update(func() {
		l.work.Job, l.work.Since, l.work.Doing = string(j.Kind), inspect.Now(), ""
		if !j.Ended {
			return
		}
		l.work.Job = "rest"
		switch {
		case j.Kind == "check" && j.Err == nil:
			l.tally.checks["done"]++
		case j.Kind == "check":
			l.tally.checks["failed"]++
		case j.Kind == "repair" && j.Err == nil:
			for _, key := range j.Things {
				l.tally.repairs[inspect.KindOf(key)]++
				l.event(inspect.DriftEvent{What: "repaired", Key: key})
			}
		}
	})
}

// progressed takes in what the worker shows.
func (l *Live) progressed(e progress.Event) {
	if e.Text != "" && (e.Kind == progress.Doing || e.Kind == progress.Change) {
		l.update(func() { l.work.Doing = e.Text })
	}
}

// polled takes in an answer of the provider.
func (l *Live) polled(answer follow.Answer, err error, next time.Duration) {
	asked := inspect.Now()
	p := inspect.Polls{First: asked, Last: asked, Next: asked.Add(next), Result: "unchanged"}
	switch {
	case err != nil:
		p.Result, p.Error = "failed", err.Error()
	case answer.Deleted != nil:
		p.Result = "deleted"
	case answer.Version != "":
		p.Result = "offered"
	}
	l.update(func() {
		before := cmp.Or(l.work.Polls, &inspect.Polls{First: asked})
		if p.First = before.First; err == nil {
			p.Answered = asked
		} else {
			p.Answered, p.Failures = before.Answered, before.Failures+1
		}
		l.work.Polls = &p
		l.tally.polls[p.Result]++
	})
}

// notPolled takes in that the provider is not asked any more.
func (l *Live) notPolled() { l.update(func() { l.work.Polls = nil }) }

// polling is how the provider is asked; nil when it is not.
func (l *Live) polling() (p *health.Polls) {
	l.update(func() { p = inspect.PollsOf(&l.work) })
	return p
}

// Attach has an agent's progress and transitions be noted.
func (l *Live) Attach(a *change.Agent) {
	show := a.Show
	a.Ended = l.transitioned
	a.Show = func(e progress.Event) {
		l.progressed(e)
		if show != nil {
			show(e)
		}
	}
}

// transitioned takes in how a transition has ended.
func (l *Live) transitioned(kind transition.Kind, result string, took time.Duration) {
	l.update(func() {
		l.tally.transitions[ended{kind, result}]++
		l.tally.took[kind] += took
	})
}

// checked takes in what a check has found.
func (l *Live) checked(s inspect.Status, known inspect.Watching) {
	l.update(func() {
		l.status, l.work.Checked = &s, inspect.Now()
		l.work.Exhausted, l.work.Refused = known.Exhausted, known.Refused
	})
}

// unchecked takes in what is known after a check that has failed.
func (l *Live) unchecked(s inspect.Status) { l.update(func() { l.status = &s }) }

// drifted takes in what drifts and did not before, and what does no longer.
func (l *Live) drifted(found []inspect.Entry, gone []string) {
	l.update(func() {
		for _, e := range found {
			l.tally.events[inspect.KindOf(string(e.Key))]++
			l.event(inspect.DriftEvent{
				What: "found", Key: string(e.Key), Expected: e.Expected, Found: e.Found,
			})
		}
		for _, key := range gone {
			last := ""
			for _, e := range l.work.Events {
				if e.Key == key {
					last = e.What
				}
			}
			if last != "repaired" {
				l.event(inspect.DriftEvent{What: "gone", Key: key})
			}
		}
	})
}

// event keeps an event; mu is held.
func (l *Live) event(e inspect.DriftEvent) {
	e.At = inspect.Now().UTC().Truncate(time.Second)
	l.work.Events = append(l.work.Events, e)
	if extra := len(l.work.Events) - mostEvents; extra > 0 {
		l.work.Events = slices.Delete(l.work.Events, 0, extra)
	}
}

// Work is what the service does now.
func (l *Live) Work() inspect.Work {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.work
	w.Events = slices.Clone(w.Events)
	if w.Polls != nil {
		polls := *w.Polls
		w.Polls = &polls
	}
	return w
}
