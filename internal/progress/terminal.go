package progress

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/untrusted"
)

// Terminal is a view for a person: finished actions scroll by, and below them up to two live lines
// are redrawn. Lines are narrower than the terminal, so that it wraps none.
type Terminal struct {
	out   io.Writer
	width func() int

	mu        sync.Mutex
	step      state.Step // "" between two steps
	doing     string
	since     time.Time
	downloads transfers
	live      int // the number of live lines on the screen
	closed    bool

	stop   context.CancelFunc
	drawer sync.WaitGroup
}

const redraw = 120 * time.Millisecond // the interval at which the live lines are drawn

// NewTerminal starts a view on a terminal; it calls width at each drawing.
func NewTerminal(out io.Writer, width func() int) *Terminal {
	drawing, stop := context.WithCancel(context.Background())
	t := &Terminal{out: out, width: width, stop: stop}
	t.drawer.Go(func() {
		for tick := time.Tick(redraw); ; {
			select {
			case <-drawing.Done():
				return
			case <-tick:
				t.mu.Lock()
				t.draw()
				t.mu.Unlock()
			}
		}
	})
	return t
}

// Close removes the live lines; later lines are printed, not drawn. It may be called twice.
func (t *Terminal) Close() {
	t.stop()
	t.drawer.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.draw()
}

// Show handles an event.
func (t *Terminal) Show(e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := untrusted.Line(e.Text)
	switch e.Kind {
	case StepBegan:
		t.step, t.doing, t.since = e.Step, "", time.Now()
	case StepDone:
		t.step = ""
		t.draw(t.row("✓", e.Step, text, seconds(e.Took)))
	case StepFailed:
		t.step = ""
		t.draw(t.row("✗", e.Step, text, ""))
	case Doing, Change:
		t.doing = text
	case Bytes:
		t.downloads.progress(e.Name, e.Done, e.Total)
	case Fetched:
		t.downloads.arrived += t.downloads.running[e.Name].total
		delete(t.downloads.running, e.Name)
	case Warning, Retry, Note:
		t.draw(t.paragraph(map[Kind]string{Warning: "!", Retry: "~", Note: " "}[e.Kind], text)...)
	}
}

// draw removes the live lines, prints lines above them, and draws them again.
func (t *Terminal) draw(printed ...string) {
	var b strings.Builder
	for range t.live {
		b.WriteString("\x1b[1A\x1b[2K") // ECMA-48: cursor up, erase the line
	}
	live := t.liveLines()
	for _, line := range append(printed, live...) {
		b.WriteString(strings.TrimRight(columns.Truncate(line, t.limit(), "…"), " ") + "\n")
	}
	t.live = len(live)
	if b.Len() > 0 {
		_, _ = io.WriteString(t.out, b.String()) // continue even if the terminal is gone
	}
}

// limit returns the max width of a line: a terminal may wrap a line that reaches its last column.
func (t *Terminal) limit() int { return max(t.width()-1, 1) }

func (t *Terminal) liveLines() []string {
	if t.closed {
		return nil
	}
	var lines []string
	if t.step != "" {
		lines = append(lines, t.row("·", t.step, t.doing, seconds(time.Since(t.since))))
	}
	if len(t.downloads.running) > 0 {
		lines = append(lines, t.bar())
	}
	return lines
}

func (t *Terminal) row(mark string, step state.Step, text, took string) string {
	head := fmt.Sprintf("  %s %s ", mark, columns.FillRight(string(step), stepWidth))
	room := max(t.limit()-columns.StringWidth(head)-columns.StringWidth(took)-1, 0)
	return head + columns.FillRight(columns.Truncate(text, room, "…"), room) + " " + took
}

func (t *Terminal) bar() string {
	done, total := t.downloads.sum()
	head := "    " + columns.FillRight(string(downloads), stepWidth) + " ["
	rate := int64(float64(done) / max(time.Since(t.downloads.began).Seconds(), 0.1))
	tail := fmt.Sprintf("] %s of %s  %s/s", size(done), size(total), size(rate))
	room := max(t.limit()-columns.StringWidth(head)-columns.StringWidth(tail), 5)
	full := int(int64(room) * done / max(total, 1))
	return head + strings.Repeat("#", full) + strings.Repeat("-", room-full) + tail
}

func (t *Terminal) paragraph(mark, text string) []string {
	const indent = "    "
	lines := wrap(text, max(t.limit()-len(indent), 1))
	for i := range lines {
		lines[i] = indent + lines[i]
	}
	lines[0] = "  " + mark + lines[0][len("   "):]
	return lines
}

type transfers struct {
	began   time.Time // the start of the first
	arrived int64     // bytes of the finished ones
	running map[string]transfer
}

type transfer struct{ done, total int64 }

// progress records a download's progress. The first one after all are done starts from zero.
func (t *transfers) progress(name string, done, total int64) {
	if len(t.running) == 0 {
		*t = transfers{began: time.Now(), running: map[string]transfer{}}
	}
	t.running[name] = transfer{done, max(total, done)}
}

func (t *transfers) sum() (done, total int64) {
	done, total = t.arrived, t.arrived
	for _, one := range t.running {
		done += one.done
		total += one.total
	}
	return done, total
}

// columns counts a terminal's columns in any locale: wide characters take two, combining ones 0.
var columns = &runewidth.Condition{StrictEmojiNeutral: true}

// wrap breaks text at spaces into lines of at most limit columns, and longer words into pieces.
func wrap(text string, limit int) []string {
	var lines []string
	current := ""
	for _, word := range strings.Fields(text) {
		if current != "" && columns.StringWidth(current)+1+columns.StringWidth(word) > limit {
			lines, current = append(lines, current), ""
		}
		for columns.StringWidth(word) > limit {
			head := columns.Truncate(word, limit, "")
			if head == "" {
				break // one character is wider than the line
			}
			lines, word = append(lines, head), word[len(head):]
		}
		current = strings.TrimSpace(current + " " + word)
	}
	return append(lines, current)
}
