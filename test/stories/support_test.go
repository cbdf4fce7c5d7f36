package stories

import (
	"context"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// A node whose Kubernetes minor version gets no more fixes has a warning, and is healthy.
func TestEndOfSupport(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	for year, want := range map[int]health.Status{2026: health.True, 2036: health.False} {
		var s inspect.Status
		err := w.run(func(ctx context.Context, a *change.Agent) (err error) {
			a.Today = func() time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
			s, err = inspect.ReadStatus(ctx, &a.Env)
			return err
		})
		if err != nil || !s.Healthy() {
			t.Errorf("in %d: healthy %v, %v", year, s.Healthy(), err)
		}
		for _, c := range s.Conditions {
			if c.Type == "VersionsSupported" && c.Status != want {
				t.Errorf("in %d: %+v", year, c)
			}
		}
	}
	if c := w.condition("VersionsSupported"); c.Status != health.True {
		t.Errorf("without a day: %+v", c)
	}
}
