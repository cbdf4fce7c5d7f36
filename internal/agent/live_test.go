package agent

import (
	"slices"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/daemon"
)

// What was repaired once, drifts again and is put right by somebody else is told as that.
func TestEventsOfOneThing(t *testing.T) {
	const key = "path:/etc/x"
	l := NewLive("1.2.3")
	found := []Entry{{Key: key}}
	l.drifted(found, nil)
	l.Job(daemon.Job{Kind: "repair", Ended: true, Things: []string{key}})
	l.drifted(nil, []string{key})
	l.drifted(found, nil)
	l.drifted(nil, []string{key})
	var told []string
	for _, e := range l.Work().Events {
		told = append(told, e.What)
	}
	if want := []string{"found", "repaired", "found", "gone"}; !slices.Equal(told, want) {
		t.Errorf("it tells %q, want %q", told, want)
	}
}
