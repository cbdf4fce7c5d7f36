package stories

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/health"
	limits "github.com/Azure/AKSFlexNode/internal/policy"
)

// A paused machine begins no change and no repair, reports that to its owner, and continues when it
// is resumed, or when the pause ends.
func TestPaused(t *testing.T) {
	for name, resumes := range map[string]bool{"resumed": true, "ended": false} {
		t.Run(name, func(t *testing.T) {
			followed(t, func(t *testing.T, s *serviceStory, _ string) {
				s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(41), policy("repair")))
				s.until(10*time.Minute, "the policy is applied", s.takes("41"))
				pause := func(length time.Duration) {
					if _, err := change.SetPause(t.Context(), s.agent(), length, "a new disk"); err != nil {
						t.Fatal(err)
					}
				}
				pause(time.Hour)
				s.write(forwardSysctl, "0\n")
				s.provider.offers(s.delivery("9", monitored, readyTimeout("1m"), pods(42), policy("repair")))
				s.until(3*time.Minute, "the change waits", s.waits(health.MachinePaused, "a new disk"))
				s.until(3*time.Minute, "it is reported", func() bool {
					return strings.Contains(s.reported("NotPaused").Message, "a new disk")
				})
				s.restart()
				s.sleep(30 * time.Minute)
				if !s.reverted() || !s.takes("41")() {
					t.Error("a paused machine is repaired, or changed")
				}
				if resumes {
					pause(0)
					s.sleep(2 * time.Minute)
				} else {
					s.sleep(32 * time.Minute)
				}
				if s.reverted() || !s.takes("42")() || !s.nothingWaits() {
					t.Errorf("it does not go on: %+v", s.condition(health.NoChangeWaiting))
				}
				if c := s.condition("NotPaused"); c.Status != health.True {
					t.Errorf("it is still paused: %+v", c)
				}
			})
		})
	}
}

// ownersFiles returns the texts of the machine's pause and policy; "" for one that is missing.
func (s *serviceStory) ownersFiles() (texts [2]string) {
	for i, file := range []string{saved.StateDir + "/" + saved.PauseFile, limits.File} {
		text, err := os.ReadFile(s.root + file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			s.t.Error(err)
		}
		texts[i] = string(text)
	}
	return texts
}

// A machine that is not a node cannot be paused.
func TestPauseNeedsANode(t *testing.T) {
	w := newWorld(t)
	_, err := change.SetPause(t.Context(), w.agent(), time.Hour, "")
	if !errors.Is(err, inspect.ErrNoNode) {
		t.Errorf("the error is %v", err)
	}
}
