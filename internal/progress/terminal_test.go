package progress

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// onTerminal runs what in simulated time, with a terminal of that width.
func onTerminal(t *testing.T, width int, what func(v *Terminal, s *screen)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &screen{t: t, width: width}
		v := NewTerminal(s, func() int { return width })
		defer v.Close()
		what(v, s)
	})
}

const long = "kubelet: cannot start: ブリッジ 10-aks-flex-node.conflist naïve " +
	"https://edge.example.org:443/api/v1/nodes/node-1?fieldManager=aks-flex-node&timeout=30s\n" +
	"second line\twith a tab and \x1b[31mcolour\x1b[0m of another program"

// The golden files are the screen in the middle of a join and at its end, at three widths; screen
// itself holds that no line is as wide as the terminal.
func TestTerminal(t *testing.T) {
	for _, width := range []int{40, 80, 200} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			onTerminal(t, width, func(v *Terminal, s *screen) {
				v.Show(Event{Kind: StepBegan, Step: state.Directories})
				v.Show(Event{Kind: StepDone, Step: state.Directories, Text: "15 changes"})
				v.Show(Event{Kind: StepBegan, Step: state.Containerd})
				v.Show(Event{Kind: Change, Step: state.Containerd, Text: "write " + long})
				v.Show(Event{Kind: Bytes, Name: "kubelet", Done: 0, Total: 50e6})
				v.Show(Event{Kind: Bytes, Name: "runc", Done: 0})
				time.Sleep(2*time.Second + redraw/2)
				v.Show(Event{Kind: Bytes, Name: "kubelet", Done: 20e6, Total: 50e6})
				v.Show(Event{Kind: Warning, Text: long})
				v.Show(Event{Kind: Retry, Name: "runc", Text: "connection cut at 3 MB; trying again"})
				time.Sleep(redraw)
				synctest.Wait()
				middle := s.text()

				v.Show(Event{Kind: Fetched, Name: "kubelet", Total: 50e6})
				v.Show(Event{Kind: Fetched, Name: "runc"})
				v.Show(Event{Kind: StepDone, Step: state.Containerd, Text: long, Took: 65 * time.Second})
				v.Show(Event{Kind: Note, Text: "the network is Cilium's; ours is not written"})
				v.Show(Event{Kind: StepBegan, Step: state.Start})
				v.Show(Event{Kind: Doing, Step: state.Start, Text: "Node node-1 is registering"})
				time.Sleep(redraw)
				v.Show(Event{Kind: StepFailed, Step: state.Start, Text: "kubelet has ended"})
				v.Close()
				golden(t, width, middle+"\n-- closed --\n"+s.text()+"\n")
			})
		})
	}
}

func golden(t *testing.T, width int, got string) {
	t.Helper()
	path := filepath.Join("testdata", fmt.Sprintf("terminal-%d.txt", width))
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the screen differs from %s (-want +got):\n%s", path, diff)
	}
}

// A terminal that is made narrower than anything fits into gets what fits.
func TestTerminalTooNarrow(t *testing.T) {
	for width := 0; width < 40; width++ {
		onTerminal(t, max(width, 2), func(v *Terminal, s *screen) {
			v.width = func() int { return width }
			v.Show(Event{Kind: Warning, Text: long})
			v.Show(Event{Kind: StepBegan, Step: state.Start})
			v.Show(Event{Kind: Bytes, Name: "kubelet", Done: 1, Total: 2})
			time.Sleep(2 * redraw)
			v.Show(Event{Kind: StepDone, Step: state.Start, Text: long})
		})
	}
}

// The bar goes when the last download has arrived, also one whose size was not known.
func TestBarEnds(t *testing.T) {
	onTerminal(t, 80, func(v *Terminal, s *screen) {
		v.Show(Event{Kind: Bytes, Name: "kubelet", Done: 10e6})
		time.Sleep(2 * redraw)
		synctest.Wait()
		if !strings.Contains(s.text(), "10.0 MB") {
			t.Errorf("while it arrives: %q", s.text())
		}
		v.Show(Event{Kind: Fetched, Name: "kubelet"})
		time.Sleep(2 * redraw)
		synctest.Wait()
		if s.text() != "" {
			t.Errorf("after it has arrived: %q", s.text())
		}
	})
}

// The rate is that of the downloads that run, not of a pause between them.
func TestBarRate(t *testing.T) {
	onTerminal(t, 80, func(v *Terminal, s *screen) {
		v.Show(Event{Kind: Bytes, Name: "kubelet", Done: 10e6, Total: 10e6})
		v.Show(Event{Kind: Fetched, Name: "kubelet", Total: 10e6})
		time.Sleep(time.Hour)
		v.Show(Event{Kind: Bytes, Name: "kubectl", Done: 0, Total: 50e6})
		time.Sleep(10*time.Second - redraw)
		v.Show(Event{Kind: Bytes, Name: "kubectl", Done: 20e6, Total: 50e6})
		time.Sleep(redraw)
		synctest.Wait()
		if !strings.HasSuffix(s.text(), "] 20.0 MB of 50.0 MB  2.0 MB/s") {
			t.Errorf("the bar: %q", s.text())
		}
	})
}

// Close takes the live lines away and may be called twice; what comes later, such as the last words
// of a download that was cancelled, is printed where it matters and breaks nothing.
func TestTerminalClose(t *testing.T) {
	onTerminal(t, 80, func(v *Terminal, s *screen) {
		v.Show(Event{Kind: StepBegan, Step: state.Start})
		v.Show(Event{Kind: Bytes, Name: "kubelet", Done: 1, Total: 2})
		time.Sleep(2 * redraw)
		v.Close()
		v.Close()
		if s.text() != "" {
			t.Errorf("after Close: %q", s.text())
		}
		v.Show(Event{Kind: Bytes, Name: "kubectl", Done: 1, Total: 2})
		v.Show(Event{Kind: StepBegan, Step: state.Start})
		v.Show(Event{Kind: Note, Text: "done"})
		if s.text() != "    done" {
			t.Errorf("a note after Close: %q", s.text())
		}
	})
}
