package progress

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/state"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// every is one event of each kind, with a line break in the text of each.
func every() []Event {
	const text = "one\ntwo"
	return []Event{
		{Kind: StepBegan, Step: state.Start},
		{Kind: StepDone, Step: state.Start, Text: text, Took: 1200 * time.Millisecond},
		{Kind: StepFailed, Step: state.Start},
		{Kind: StepFailed, Step: state.Start, Text: text},
		{Kind: Doing, Step: state.Start, Text: text},
		{Kind: Change, Step: state.Start, Text: text},
		{Kind: Bytes, Name: "kubelet", Done: 1, Total: 2},
		{Kind: Fetched, Name: "kubelet", Total: 2.5e6, Took: time.Second},
		{Kind: Fetched, Name: "kubectl"},
		{Kind: Retry, Name: "kubelet", Text: text},
		{Kind: Warning, Text: text},
		{Kind: Note, Text: text},
	}
}

func TestLines(t *testing.T) {
	var out strings.Builder
	view := Lines(&out)
	for _, e := range every() {
		view(e)
	}
	want := `start        one two (1.2s)
start        failed
start        failed: one two
start        one two
download     kubelet 2.5 MB (1.0s)
download     kubectl (0.0s)
download     one two
warning: one two
one two
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                         "0.0s",
		59940 * time.Millisecond:  "59.9s",
		59960 * time.Millisecond:  "1m00s",
		185 * time.Second:         "3m05s",
		time.Hour:                 "60m00s",
		119700 * time.Millisecond: "2m00s",
	} {
		if got := seconds(d); got != want {
			t.Errorf("seconds(%s) = %s, want %s", d, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 kB", 900: "1 kB", 1.5e6: "1.5 MB", 1.05e9: "1.1 GB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
}
