package progress

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// stepWidth is the number of columns of the longest step's name, "directories" or "credentials",
// and one more.
const stepWidth = 12

// downloads stands where other lines have their step.
const downloads state.Step = "download"

// Lines is a View for pipes: one line for each thing that is done.
type Lines struct {
	Out io.Writer
	mu  sync.Mutex
}

func (l *Lines) Show(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text := line(e); text != "" {
		fmt.Fprintln(l.Out, text) // a reader that is gone is no reason to stop
	}
}

func (l *Lines) Close() {}

func line(e Event) string {
	text := oneLine(e.Text)
	switch e.Kind {
	case StepDone:
		return within(e.Step, fmt.Sprintf("%s (%s)", text, seconds(e.Took)))
	case StepFailed:
		return within(e.Step, strings.TrimSuffix("failed: "+text, ": "))
	case Doing:
		return within(e.Step, text)
	case Fetched:
		what := oneLine(e.Name)
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
	return strings.TrimSpace(pad(string(step), stepWidth) + " " + text)
}

// seconds is a duration as people read it: 0.1s, 12.3s, 3m05s.
func seconds(d time.Duration) string {
	d = d.Round(100 * time.Millisecond)
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	d = d.Round(time.Second)
	return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
}

// size is a number of bytes as people read it.
func size(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	default:
		return fmt.Sprintf("%.0f kB", float64(n)/1e3)
	}
}
