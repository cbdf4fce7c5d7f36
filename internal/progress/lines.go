package progress

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Lines is a View for pipes and journals: one line for each thing that is done.
type Lines struct {
	Out io.Writer
	mu  sync.Mutex
}

// Show implements View.
func (l *Lines) Show(e Event) {
	text := line(e)
	if text == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(l.Out, text)
}

// Close implements View.
func (l *Lines) Close() {}

func line(e Event) string {
	switch e.Kind {
	case StepDone:
		return fmt.Sprintf("%-12s %s (%s)", e.Step, e.Text, seconds(e.Took))
	case StepFailed:
		return fmt.Sprintf("%-12s failed", e.Step)
	case Doing:
		return fmt.Sprintf("%-12s %s", e.Step, e.Text)
	case Fetched:
		return fmt.Sprintf("%-12s %s (%s)", "download", strings.TrimSpace(e.Name+" "+size(e.Total)), seconds(e.Took))
	case Retry:
		return fmt.Sprintf("%-12s %s", "download", e.Text)
	case Warning:
		return "warning: " + e.Text
	case Note:
		return e.Text
	default:
		return ""
	}
}

// seconds is a duration as people read it: 0.1s, 12.3s, 3m05s.
func seconds(d time.Duration) string {
	if d >= time.Minute {
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%.1fs", d.Seconds())
}

// size is a number of bytes as people read it.
func size(n int64) string {
	switch {
	case n == 0:
		return ""
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	default:
		return fmt.Sprintf("%.0f kB", float64(n)/1e3)
	}
}
