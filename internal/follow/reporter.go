package follow

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

const (
	heartbeat = time.Hour        // the interval of reports from an unchanged node, give or take a half
	fresh     = 30 * time.Minute // the max age of such a report
)

// Reporter reports the node's status to the provider: on changes, and periodically.
type Reporter struct {
	Resource *Resource
	Log      *slog.Logger

	mu      sync.Mutex
	says    chan said // the last report, until Run takes it
	last    said
	told    string    // the last content reported
	pace    pace      // counts the consecutive failures
	overdue bool      // a due report was too old
	after   time.Time // of the next attempt, at the earliest
}

type said struct {
	report *agentapi.Report
	at     time.Time
}

// NewReporter returns a Reporter.
func NewReporter(r *Resource, log *slog.Logger) *Reporter {
	return &Reporter{Resource: r, Log: log, says: make(chan said, 1)}
}

// Say queues the current report. It does not block; only the last of several reports counts.
func (r *Reporter) Say(report agentapi.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.says:
	default:
	}
	r.says <- said{&report, time.Now()}
}

// Run reports until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	again := time.NewTimer(wait.Jitter(heartbeat))
	defer again.Stop()
	for {
		due := false
		select {
		case <-ctx.Done():
			return
		case r.last = <-r.says:
		case <-again.C:
			due = true
		}
		if pause := r.tell(ctx, due || r.overdue || r.pace.failures > 0); pause > 0 {
			again.Reset(pause)
		}
	}
}

// tell sends a new or due report, unless it is too old: then it waits for the next report. It
// returns the time until the next report; 0 leaves it unchanged.
func (r *Reporter) tell(ctx context.Context, due bool) time.Duration {
	report := r.last.report
	if report == nil {
		return wait.Jitter(heartbeat)
	}
	says := saysOf(*report)
	if says == r.told && !due || time.Now().Before(r.after) {
		return 0
	}
	if r.overdue = time.Since(r.last.at) > fresh; r.overdue {
		return wait.Jitter(heartbeat)
	}
	if err := r.Resource.Report(ctx, *report); err != nil {
		if ctx.Err() != nil {
			return 0 // the caller has cancelled it
		}
		pause := r.pace.afterError(err)
		if r.pace.failures == 1 {
			r.Log.Warn("cannot report how the node is; trying again", "error", err)
		}
		r.after = time.Now().Add(pause)
		return pause
	}
	r.told, r.pace, r.after = says, pace{}, time.Time{}
	return wait.Jitter(heartbeat)
}

// saysOf returns the content of a report. The time at which drift was last seen is no news.
func saysOf(report agentapi.Report) string {
	if report.Drift != nil {
		report.Drift = new(*report.Drift)
		report.Drift.LastSeen = nil
	}
	text, err := json.Marshal(report)
	if err != nil {
		panic("internal error: " + err.Error()) // numbers, texts and times encode
	}
	return string(text)
}
