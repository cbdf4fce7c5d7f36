package service

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/daemon"
	"github.com/Azure/AKSFlexNode/internal/follow"
	"github.com/Azure/AKSFlexNode/internal/metrics"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// A provider that was never heard of is silent since it was asked for the first time, and not since
// the service began.
func TestPollsBeginLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLive("1.2.3")
		if l.Work().Polls != nil {
			t.Error("it polls before it was asked to")
		}
		time.Sleep(24 * time.Hour)
		first := time.Now()
		for range 2 {
			l.polled(follow.Answer{}, errors.New("connection refused"), time.Minute)
			time.Sleep(time.Minute)
		}
		if p := l.Work().Polls; !p.Answered.IsZero() || !p.First.Equal(first) || p.Failures != 2 {
			t.Errorf("it was asked at %s: %+v", first, p)
		}
		answered := time.Now()
		l.polled(follow.Answer{}, nil, time.Minute)
		time.Sleep(time.Minute)
		l.polled(follow.Answer{}, errors.New("connection refused"), time.Minute)
		if p := l.Work().Polls; !p.Answered.Equal(answered) || p.Failures != 1 {
			t.Errorf("it has answered at %s: %+v", answered, p)
		}
	})
}

// Alerts compare the numbers of failed transitions with earlier ones, so they are there from the
// start of the service.
func TestFailuresStartAtZero(t *testing.T) {
	var is []string
	l, a := NewLive("1.2.3"), &change.Agent{}
	l.Attach(a)
	a.Ended(transition.Change, string(transition.Failed), time.Minute)
	for line := range strings.Lines(string(metrics.Text(l.Metrics()))) {
		if name, found := strings.CutPrefix(line, "aks_flex_node_transitions_total"); found {
			is = append(is, strings.TrimSpace(name))
		}
	}
	var want []string
	for _, kind := range []string{"join", "change", "repair", "rollback", "leave"} {
		for _, result := range []string{"rolled_back", "failed"} {
			n := 0
			if kind == "change" && result == "failed" {
				n = 1
			}
			want = append(want, fmt.Sprintf(`{kind=%q,result=%q} %d`, kind, result, n))
		}
	}
	if diff := cmp.Diff(want, is); diff != "" {
		t.Error(diff)
	}
}

// Events say that a thing was repaired once, drifts again and is repaired by another process.
func TestEventsOfOneThing(t *testing.T) {
	const key = "path:/etc/x"
	l := NewLive("1.2.3")
	found := []state.Line{{Key: key}}
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
