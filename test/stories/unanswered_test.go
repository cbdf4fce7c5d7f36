package stories

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
)

// mute is a systemd that accepts requests and answers none of them while on is true.
type mute struct {
	host.Systemd
	on func() bool
}

func (m *mute) Unit(ctx context.Context, name string, process bool) (host.UnitStatus, error) {
	if m.on() {
		<-ctx.Done()
		return host.UnitStatus{}, ctx.Err()
	}
	return m.Systemd.Unit(ctx, name, process)
}

func (m *mute) Fragments(ctx context.Context, names []string) (map[string]string, error) {
	if m.on() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return m.Systemd.Fragments(ctx, names)
}

// A check ends in time even if neither systemd nor the network answers. It finds changes on the
// machine, and reports what it could not determine.
func TestCheckWithoutAnswers(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		s.mute.Store(true)
		s.set(func() { s.hole = true })
		s.write(forwardSysctl, "0\n")
		s.sleep(5 * time.Minute)
		if age := time.Since(s.is().CheckedAt); age > 2*time.Minute {
			t.Errorf("the node was checked last %s ago", age)
		}
		if drift := s.drifts(); !slices.Contains(drift, "sysctl:net.ipv4.ip_forward") {
			t.Errorf("the drift is %v", drift)
		}
		c := s.condition(health.NodeObserved)
		if c.Status != health.False || !strings.Contains(c.Message, "kubelet.service") {
			t.Errorf("the condition is %+v", c)
		}
		if c := s.condition(health.APIServerReachable); c.Reason != "NotConnected" {
			t.Errorf("the condition is %+v", c)
		}
		if strings.Contains(s.log.String(), "cannot check the node") {
			t.Error("a check fails")
		}
		if s.is().Healthy() {
			t.Error("a node of which little is known is healthy")
		}
		s.mute.Store(false)
		s.until(2*time.Minute, "the machine is observed", func() bool {
			return s.condition(health.NodeObserved).Status == health.True
		})
	})
}

// A failed check is reported, too: the previous status is not repeated as if it were current.
func TestFailedCheckIsTold(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.join()
		s.until(2*time.Minute, "a check", func() bool {
			return s.condition(health.NodeObserved).Status == health.True
		})
		checked, sound := s.is().CheckedAt, s.raw()
		s.write(saved.StateDir+"/arc.json", "{")
		s.until(3*time.Minute, "it is reported", func() bool {
			return s.condition(health.NodeObserved).Reason == "CheckFailed"
		})
		is := s.is()
		if c := s.condition(health.NodeObserved); !strings.Contains(c.Message, "arc.json") ||
			is.State == inspect.Sound || is.Healthy() || is.CheckedAt.After(checked.Add(2*time.Minute)) {
			t.Errorf("the condition is %+v; checked at %s", c, is.CheckedAt)
		}
		s.end()
		s.write(inspect.StatusFile, sound)
		s.start()
		s.until(3*time.Minute, "the next process reports it", func() bool { return !s.is().Healthy() })
		if err := os.Remove(s.root + saved.StateDir + "/arc.json"); err != nil {
			t.Fatal(err)
		}
		s.until(2*time.Minute, "it is checked again", func() bool { return s.is().Healthy() })
	})
}
