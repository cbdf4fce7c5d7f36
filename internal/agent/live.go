package agent

import (
	"cmp"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/daemon"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/progress"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// Work is what the running service does, and what it alone knows.
type Work struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Job is what its worker does (rest, reconcile, check, repair, leave) and since when; Doing says
	// more of it.
	Job   string    `json:"job"`
	Since time.Time `json:"since"`
	Doing string    `json:"doing,omitempty"`
	// Checked is when the node was checked last.
	Checked time.Time `json:"checked,omitzero"`
	// Polls is how the provider is asked; nil when it is not.
	Polls *Polls `json:"polls,omitempty"`
	// Exhausted are the things that are no longer repaired; Refused is why the configuration is not
	// in force.
	Exhausted []string          `json:"exhausted,omitempty"`
	Refused   *health.Rejection `json:"refused,omitempty"`
	// Events are the last things that drifted, were repaired, or were put right by others.
	Events []DriftEvent `json:"events,omitempty"`
}

// Polls is how the provider is asked.
type Polls struct {
	// First is when it was asked for the first time, Answered when it has answered last.
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
	Next     time.Time `json:"next"`
	Answered time.Time `json:"answered,omitzero"`
	// Result is unchanged, offered, deleted or failed; Error says why it has failed.
	Result string `json:"result"`
	Error  string `json:"error,omitempty"`
	// Failures is how many polls in a row have failed.
	Failures int `json:"failures,omitempty"`
	// Received and Applied are the configVersions that the machine has and that it runs on.
	Received string `json:"received,omitempty"`
	Applied  string `json:"applied,omitempty"`
}

// DriftEvent is what has become of one thing.
type DriftEvent struct {
	At time.Time `json:"at"`
	// What is found, repaired, or gone: nobody here has repaired it.
	What     string `json:"what"`
	Key      string `json:"key"`
	Expected string `json:"expected,omitempty"`
	Found    string `json:"found,omitempty"`
}

// mostEvents is how many events are kept.
const mostEvents = 20

// Live is what the running service does and has counted. All methods may be called by many
// goroutines; those of a nil one do nothing.
type Live struct {
	mu   sync.Mutex
	work Work
	// status is what the last check has found; nil before there was one.
	status *Status
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
	began := now()
	return &Live{
		work: Work{Version: version, PID: os.Getpid(), Started: began, Job: "rest", Since: began},
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
		l.work.Job, l.work.Since, l.work.Doing = string(j.Kind), now(), ""
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
				l.tally.repairs[kindOf(key)]++
				l.event(DriftEvent{What: "repaired", Key: key})
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
	asked := now()
	p := Polls{First: asked, Last: asked, Next: asked.Add(next), Result: "unchanged"}
	switch {
	case err != nil:
		p.Result, p.Error = "failed", err.Error()
	case answer.Deleted != nil:
		p.Result = "deleted"
	case answer.Version != "":
		p.Result = "offered"
	}
	l.update(func() {
		before := cmp.Or(l.work.Polls, &Polls{First: asked})
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
	l.update(func() { p = pollsOf(&l.work) })
	return p
}

// transitioned takes in how a transition has ended.
func (l *Live) transitioned(kind transition.Kind, result string, took time.Duration) {
	l.update(func() {
		l.tally.transitions[ended{kind, result}]++
		l.tally.took[kind] += took
	})
}

// checked takes in what a check has found.
func (l *Live) checked(s Status, known watching) {
	l.update(func() {
		l.status, l.work.Checked = &s, now()
		l.work.Exhausted, l.work.Refused = known.exhausted, known.refused
	})
}

// unchecked takes in what is known after a check that has failed.
func (l *Live) unchecked(s Status) { l.update(func() { l.status = &s }) }

// drifted takes in what drifts and did not before, and what does no longer.
func (l *Live) drifted(found []Entry, gone []string) {
	l.update(func() {
		for _, e := range found {
			l.tally.events[kindOf(string(e.Key))]++
			l.event(DriftEvent{
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
				l.event(DriftEvent{What: "gone", Key: key})
			}
		}
	})
}

// event keeps an event; mu is held.
func (l *Live) event(e DriftEvent) {
	e.At = now().UTC().Truncate(time.Second)
	l.work.Events = append(l.work.Events, e)
	if extra := len(l.work.Events) - mostEvents; extra > 0 {
		l.work.Events = slices.Delete(l.work.Events, 0, extra)
	}
}

// Work is what the service does now.
func (l *Live) Work() Work {
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
