package progress

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Terminal is a View for a person: what is done stays as lines, what is being done is redrawn below them.
type Terminal struct {
	Out io.Writer
	// Width is the number of columns.
	Width func() int
	// Now is the clock.
	Now func() time.Time

	mu       sync.Mutex
	step     state.Step
	doing    string
	since    time.Time
	fetching map[string]Event
	fetchers time.Time
	live     int
	stop     chan struct{}
	stopped  sync.WaitGroup
}

// redraw is how often the live lines are drawn anew.
const redraw = 120 * time.Millisecond

// NewTerminal starts a view on a terminal.
func NewTerminal(out io.Writer, width func() int) *Terminal {
	t := &Terminal{Out: out, Width: width, Now: time.Now, fetching: map[string]Event{}, stop: make(chan struct{})}
	t.stopped.Go(t.run)
	return t
}

func (t *Terminal) run() {
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	for {
		select {
		case <-t.stop:
			return
		case <-tick.C:
			t.mu.Lock()
			t.draw("")
			t.mu.Unlock()
		}
	}
}

// Close implements View.
func (t *Terminal) Close() {
	close(t.stop)
	t.stopped.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.step, t.fetching = "", nil
	t.draw("")
}

// Show implements View.
func (t *Terminal) Show(e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.Kind {
	case StepBegan:
		t.step, t.doing, t.since = e.Step, "", t.Now()
	case StepDone:
		t.step = ""
		t.draw(fmt.Sprintf("  ✓ %-12s %s", e.Step, t.justify(e.Text, seconds(e.Took))))
	case StepFailed:
		t.step = ""
		t.draw(fmt.Sprintf("  ✗ %-12s", e.Step))
	case Doing, Change:
		t.doing = e.Text
	case Bytes:
		if len(t.fetching) == 0 {
			t.fetchers = t.Now()
		}
		t.fetching[e.Name] = e
	case Fetched:
		if f, ok := t.fetching[e.Name]; ok {
			f.Done = max(f.Done, f.Total)
			t.fetching[e.Name] = f
		}
	case Warning:
		t.draw(t.wrap("  ! ", e.Text))
	case Retry:
		t.draw(t.wrap("  ~ ", e.Text))
	case Note:
		t.draw(t.wrap("    ", e.Text))
	}
}

// draw writes lines that stay, and the live lines below them.
func (t *Terminal) draw(stays string) {
	var b strings.Builder
	for range t.live {
		b.WriteString("\x1b[1A\x1b[2K")
	}
	if stays != "" {
		b.WriteString(stays + "\n")
	}
	live := t.liveLines()
	for _, l := range live {
		b.WriteString(clip(l, t.Width()-1) + "\n")
	}
	t.live = len(live)
	if b.Len() > 0 {
		io.WriteString(t.Out, b.String()) // a terminal that is gone is no reason to stop
	}
}

func (t *Terminal) liveLines() []string {
	var lines []string
	if t.step != "" {
		lines = append(lines, fmt.Sprintf("  · %-12s %s", t.step, t.justify(t.doing, seconds(t.Now().Sub(t.since)))))
	}
	if bar := t.bar(); bar != "" {
		lines = append(lines, bar)
	}
	return lines
}

// bar is one bar for all downloads together; empty when none is under way.
func (t *Terminal) bar() string {
	var done, total int64
	left := 0
	for _, e := range t.fetching {
		done += e.Done
		total += max(e.Total, e.Done)
		if e.Total == 0 || e.Done < e.Total {
			left++
		}
	}
	if left == 0 || total == 0 {
		return ""
	}
	rate := float64(done) / max(t.Now().Sub(t.fetchers).Seconds(), 0.1)
	tail := fmt.Sprintf(" %s of %s  %s/s", size(done), size(total), size(int64(rate)))
	width := max(t.Width()-len(tail)-22, 5)
	full := int(int64(width) * done / total)
	return "    " + fmt.Sprintf("%-12s ", "download") + "[" + strings.Repeat("#", full) + strings.Repeat("-", width-full) + "]" + tail
}

// justify sets text to the left and tail to the right end of the line.
func (t *Terminal) justify(text, tail string) string {
	room := t.Width() - 1 - len("  ✓ ") - 12 - 1 - len(tail) - 1
	room = max(room, 10)
	return fmt.Sprintf("%-*s %s", room, clip(text, room), tail)
}

// wrap breaks text at spaces to the terminal's width; further lines are indented as the first one's text.
func (t *Terminal) wrap(head, text string) string {
	room := max(t.Width()-1-len(head), 20)
	var lines []string
	current := ""
	for _, word := range strings.Fields(text) {
		if current != "" && len(current)+1+len(word) > room {
			lines, current = append(lines, current), ""
		}
		current = strings.TrimSpace(current + " " + word)
	}
	lines = append(lines, current)
	return head + strings.Join(lines, "\n"+strings.Repeat(" ", len(head)))
}

// clip shortens text to width columns.
func clip(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:max(width-1, 0)]) + "…"
}
