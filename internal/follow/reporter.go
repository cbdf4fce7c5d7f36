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

// heartbeat is the interval of reports of a node that has not changed, with half as much more or
// less. fresh is the max age of such a report.
const (
	heartbeat = time.Hour
	fresh     = 30 * time.Minute
)

// Reporter tells the provider how the node is: when that has changed, and once in a while.
type Reporter struct {
	Resource *Resource
	Log      *slog.Logger

	mu   sync.Mutex
	says chan said // the last report, until Run takes it
	last said
	told string // what was reported last
	// failed counts the failed tries in a row; overdue reports that a report was due and too old.
	failed  int
	overdue bool
	after   time.Time // when the next try may be, after one that has failed
}

type said struct {
	report *agentapi.Report
	at     time.Time
}

// NewReporter makes a Reporter.
func NewReporter(r *Resource, log *slog.Logger) *Reporter {
	return &Reporter{Resource: r, Log: log, says: make(chan said, 1)}
}

// Say takes the present report. It does not wait; of several reports the last one counts.
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
		if pause := r.tell(ctx, due || r.overdue || r.failed > 0); pause > 0 {
			again.Reset(pause)
		}
	}
}

// tell reports what is new or due, unless it is too old: then the next report is waited for. It
// returns when to report next; 0 leaves that as it is.
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
			return 0 // it has not failed: the caller has ended it
		}
		p := pace{failures: r.failed}
		if r.failed++; r.failed == 1 {
			r.Log.Warn("cannot report how the node is; trying again", "error", err)
		}
		pause := p.afterError(err)
		r.after = time.Now().Add(pause)
		return pause
	}
	r.told, r.failed, r.after = says, 0, time.Time{}
	return wait.Jitter(heartbeat)
}

// saysOf is all that a report says. When something was seen last says nothing new.
func saysOf(report agentapi.Report) string {
	if report.Drift != nil {
		drift := *report.Drift
		drift.LastSeen = nil
		report.Drift = &drift
	}
	text, err := json.Marshal(report)
	if err != nil {
		panic("internal error: " + err.Error()) // numbers, texts and times encode
	}
	return string(text)
}
