package service

import (
	"cmp"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/daemon"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/metrics"
	"github.com/Azure/AKSFlexNode/internal/progress"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

const maxEvents = 20

// Live holds the current work and the counters of the service. It is safe for concurrent use.
type Live struct {
	mu     sync.Mutex
	work   inspect.Work
	status *inspect.Status // the result of the last check; nil before the first
	// counts are the counters since the start of the service, by the name of their metric.
	counts map[string][]metrics.Sample
	// address is the address of server, file the last metrics file. Only the worker uses them.
	address, file string
	server        *http.Server
}

// NewLive starts counting.
func NewLive(version string) *Live {
	began := time.Now()
	l := &Live{counts: map[string][]metrics.Sample{}, work: inspect.Work{
		Version: version, PID: os.Getpid(), Started: began, Job: "rest", Since: began,
	}}
	for _, kind := range []transition.Kind{transition.Join, transition.Change, transition.Repair,
		transition.Rollback, transition.Leave} {
		for _, result := range []transition.OutcomeKind{transition.RolledBack, transition.Failed} {
			l.count("transitions_total", "", 0, "kind", string(kind), "result", string(result))
		} // from 0, so that the first failure is an increase
	}
	return l
}

func (l *Live) update(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// count adds to a sample of a counter; mu is held.
func (l *Live) count(name, suffix string, by float64, labels ...string) {
	list := l.counts[name]
	i := slices.IndexFunc(list, func(s metrics.Sample) bool {
		return s.Suffix == suffix && slices.Equal(s.Labels, labels)
	})
	if i < 0 {
		i = len(list)
		list = append(list, metrics.Sample{Suffix: suffix, Labels: labels})
	}
	list[i].Value += by
	l.counts[name] = list
}

// Job records the current job of the daemon's worker.
func (l *Live) Job(j daemon.Job) {
	l.update(func() {
		l.work.Job, l.work.Since, l.work.Doing = j.Kind, time.Now(), ""
		if !j.Ended {
			return
		}
		l.work.Job = "rest"
		switch {
		case j.Kind == daemon.Check:
			result := map[bool]string{true: "done", false: "failed"}[j.Err == nil]
			l.count("checks_total", "", 1, "result", result)
		case j.Kind == daemon.Repair && j.Err == nil:
			for _, key := range j.Things {
				l.count("repairs_total", "", 1, "kind", inspect.KindOf(key))
				l.event(inspect.DriftEvent{What: "repaired", Key: key})
			}
		}
	})
}

// Attach records an agent's progress and transitions.
func (l *Live) Attach(a *change.Agent) {
	show := a.Show
	a.Show = func(e progress.Event) {
		if e.Text != "" && (e.Kind == progress.Doing || e.Kind == progress.Change) {
			l.update(func() { l.work.Doing = e.Text })
		}
		if show != nil {
			show(e)
		}
	}
	a.Ended = func(kind transition.Kind, result string, took time.Duration) {
		l.update(func() {
			const duration = "transition_duration_seconds"
			l.count("transitions_total", "", 1, "kind", string(kind), "result", result)
			l.count(duration, "_sum", took.Seconds(), "kind", string(kind))
			l.count(duration, "_count", 1, "kind", string(kind))
		})
	}
}

func (l *Live) polled(answer follow.Answer, err error, next time.Duration) {
	asked := time.Now()
	l.update(func() {
		p := *cmp.Or(l.work.Polls, &health.Polls{First: asked})
		p.Last, p.Next, p.Result, p.Error = asked, asked.Add(next), "unchanged", ""
		switch {
		case err != nil:
			p.Result, p.Error = "failed", err.Error()
			p.Failures++
		case answer.Deleted != nil:
			p.Result = "deleted"
		case answer.Version != "":
			p.Result = "offered"
		}
		if err == nil {
			p.Answered, p.Failures, p.Second = asked, 0, ""
			if answer.Deleted == nil {
				p.Kept = ""
			}
		}
		switch {
		case follow.IsSecond(err):
			p.Second = health.SecondRefused
		case err == nil && answer.Second:
			p.Second = health.SecondSeen
		}
		l.work.Polls = &p
		l.count("polls_total", "", 1, "result", p.Result)
	})
}

// kept records why the machine is not given back, though its resource was deleted.
func kept(l *Live, reason string) {
	l.update(func() {
		p := *cmp.Or(l.work.Polls, &health.Polls{})
		p.Kept = reason
		l.work.Polls = &p
	})
}

func (l *Live) checked(s inspect.Status, known *inspect.Work) {
	l.update(func() {
		l.status, l.work.Checked = &s, time.Now()
		l.work.Exhausted, l.work.Refused = known.Exhausted, known.Refused
	})
}

func (l *Live) drifted(found []state.Line, gone []string) {
	l.update(func() {
		for _, e := range found {
			l.count("drift_events_total", "", 1, "kind", inspect.KindOf(string(e.Key)))
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

// event stores an event; mu is held.
func (l *Live) event(e inspect.DriftEvent) {
	e.At = time.Now().UTC().Truncate(time.Second)
	events := append(l.work.Events, e)
	l.work.Events = slices.Clone(events[max(0, len(events)-maxEvents):])
}

// Work returns the current work of the service.
func (l *Live) Work() (w inspect.Work) {
	l.update(func() { w = l.work })
	return w
}
