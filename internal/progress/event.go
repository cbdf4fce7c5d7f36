// Package progress shows the progress of a verb: one stream of events, drawn on a terminal, written
// as lines to a pipe, or logged by a service. It decides nothing: the agent emits events, the
// command chooses the view, which must be safe for concurrent use.
package progress

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/untrusted"
)

// Kind is the kind of an Event.
type Kind int

// The kinds of events.
const (
	StepBegan  Kind = iota // Step begins
	StepDone               // Step is done; Text summarises it, Took is its time
	StepFailed             // Step has failed; Text may be the reason
	Doing                  // a slow part of Step: Text
	Change                 // a change to the host, within Step: Text
	Bytes                  // Done of Total bytes of Name were received (Total 0: unknown)
	Fetched                // Name of Total bytes was received and verified; Took is its time
	Retry                  // the download of Name is retried: Text is the reason
	Warning                // the operator should act: Text
	Note                   // worth knowing: Text
)

// Event is one thing that happened.
type Event struct {
	Kind  Kind
	Step  state.Step
	Text  string
	Name  string
	Done  int64
	Total int64
	Took  time.Duration
}

// stepWidth is the width of the longest name of a step ("directories", "credentials"), plus one.
const stepWidth = 12

// downloads replaces the step in lines about downloads.
const downloads state.Step = "download"

// Lines returns a view for pipes, which writes one line for each completed action.
func Lines(out io.Writer) func(Event) {
	var mu sync.Mutex
	return func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		if text := line(e); text != "" {
			fmt.Fprintln(out, text) // continue even if the reader is gone
		}
	}
}

func line(e Event) string {
	text := untrusted.Line(e.Text)
	switch e.Kind {
	case StepDone:
		return within(e.Step, fmt.Sprintf("%s (%s)", text, seconds(e.Took)))
	case StepFailed:
		return within(e.Step, strings.TrimSuffix("failed: "+text, ": "))
	case Doing:
		return within(e.Step, text)
	case Fetched:
		what := untrusted.Line(e.Name)
		if e.Total > 0 {
			what += " " + size(e.Total)
		}
		return within(downloads, fmt.Sprintf("%s (%s)", what, seconds(e.Took)))
	case Retry:
		return within(downloads, text)
	case Warning:
		return "warning: " + text
	case Note:
		return text
	}
	return ""
}

func within(step state.Step, text string) string {
	return strings.TrimSpace(columns.FillRight(string(step), stepWidth) + " " + text)
}

// Log logs an event for services, with what a person would see. The engine logs changes of the host
// itself. The text of a warning or note is already a sentence, and so the message. Other events are
// too many, and these show their result.
func Log(log *slog.Logger, e Event) {
	text := untrusted.Line(e.Text)
	switch e.Kind {
	case Warning:
		log.Warn(text)
	case Note:
		log.Info(text)
	case StepFailed:
		log.Warn("step failed", "step", string(e.Step), "reason", text)
	case Retry:
		log.Info("download is tried again", "artifact", e.Name, "reason", text)
	case StepDone:
		log.Debug("step done", "step", string(e.Step), "result", text, "took", e.Took)
	case Doing:
		log.Debug("waiting", "step", string(e.Step), "for", text)
	case Fetched:
		log.Info("download done", "artifact", e.Name, "bytes", e.Total, "took", e.Took)
	}
}

// seconds formats a duration for people: 0.1s, 12.3s, 3m05s.
func seconds(d time.Duration) string {
	d = d.Round(100 * time.Millisecond)
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	d = d.Round(time.Second)
	return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
}

func size(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.0f kB", float64(n)/1e3)
}
