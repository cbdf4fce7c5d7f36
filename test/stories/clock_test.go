package stories

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// clock is the wall clock of a machine, which is set while the agent runs. The clock of a bubble
// cannot be set: its time is the present reading of the machine's clock, and a step moves earlier
// timestamps instead: an hour back makes them an hour later. Intervals are those of the bubble,
// like those of CLOCK_MONOTONIC.
type clock struct {
	service *serviceStory

	mu    sync.Mutex
	steps []step
	// ahead is the lead of the clock over the right time, which the API server has.
	ahead time.Duration
	// starts are the units that were started, in order.
	starts []string
}

// step is one setting of a clock.
type step struct {
	at time.Time
	by time.Duration
}

// clocked runs a story of a machine whose clock is ahead of the right time, or behind it.
func clocked(t *testing.T, ahead time.Duration, tell func(*testing.T, *serviceStory, *clock)) {
	t.Helper()
	story(t, func(t *testing.T, s *serviceStory) {
		c := &clock{service: s, ahead: ahead}
		s.systemd.Stamp = c.stamp
		s.cluster.set(func() { s.cluster.ahead, s.cluster.heartbeat = -ahead, c.heartbeat })
		start := s.systemd.OnStart
		s.systemd.OnStart = func(unit, text string) error {
			c.mu.Lock()
			c.starts = append(c.starts, unit)
			c.mu.Unlock()
			return start(unit, text)
		}
		tell(t, s, c)
	})
}

// stamp returns the timestamp of an instant, relative to the present clock.
func (c *clock) stamp(at time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.steps {
		if s.at.After(at) {
			at = at.Add(-s.by)
		}
	}
	return at
}

// set sets the clock, like NTP does with one that is far off.
func (c *clock) set(by time.Duration) {
	c.mu.Lock()
	c.steps = append(c.steps, step{time.Now(), by})
	c.ahead += by
	ahead := c.ahead
	c.mu.Unlock()
	c.service.cluster.set(func() { c.service.cluster.ahead = -ahead })
	for _, dir := range []string{saved.StateDir, saved.RunDir} {
		if err := c.restamp(filepath.Join(c.service.root, dir), -by); err != nil {
			c.service.t.Error(err)
		}
	}
}

// inCharge reports whether the agent runs.
func (s *serviceStory) inCharge() bool {
	select {
	case <-s.ended:
		return false
	default:
		return s.ended != nil
	}
}

// stamped matches the times in the agent's records.
var stamped = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"`)

// restamp moves all times in the records of a directory. While the agent runs, it leaves that of
// the transition: its process compares it with its own times.
func (c *clock) restamp(dir string, by time.Duration) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	for _, file := range files {
		if filepath.Base(file) == saved.TransitionFile && c.service.inCharge() {
			continue
		}
		data, readErr := os.ReadFile(file)
		if errors.Is(readErr, fs.ErrNotExist) {
			continue // it was being replaced
		}
		moved := stamped.ReplaceAllStringFunc(string(data), func(text string) string {
			at, parseErr := time.Parse(time.RFC3339Nano, strings.Trim(text, `"`))
			err = errors.Join(err, parseErr)
			return `"` + at.Add(by).Format(time.RFC3339Nano) + `"`
		})
		if err = errors.Join(err, readErr); err == nil && moved != string(data) {
			err = os.WriteFile(file, []byte(moved), 0o600)
		}
	}
	return err
}

// beatEvery is the pause between two heartbeats: kubelet renews the lease and posts the status.
const beatEvery = 10 * time.Second

// heartbeat returns kubelet's last timestamp: a second after its start, and then every ten seconds.
// Before that, it is of the kubelet that ran earlier.
func (c *clock) heartbeat() time.Time {
	since := c.service.kubeletSince()
	first := since.Add(time.Second)
	switch now := time.Now(); {
	case since.IsZero():
		return c.stamp(now.Add(-time.Minute))
	case now.Before(first):
		return c.stamp(since.Add(-time.Second))
	default:
		return c.stamp(first.Add(now.Sub(first).Truncate(beatEvery)))
	}
}

// started returns the units that were started since the last call.
func (c *clock) started() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	starts := c.starts
	c.starts = nil
	return starts
}

// unwell returns the conditions of the status that are not True, as text.
func (s *serviceStory) unwell() (list []string) {
	for _, c := range s.is().Conditions {
		if c.Status != health.True {
			list = append(list, fmt.Sprintf("%s is %s: %s %s", c.Type, c.Status, c.Reason, c.Message))
		}
	}
	return list
}

// staysHealthy lets time pass, and fails unless every check finds the node as healthy as before, no
// unit is started, and nothing is rejected.
func (s *serviceStory) staysHealthy(c *clock, within time.Duration, before []string) {
	s.t.Helper()
	for began := time.Now(); time.Since(began) < within; s.sleep(20 * time.Second) {
		is := s.is()
		if now := s.unwell(); !slices.Equal(before, now) || is.Ready != "True" {
			s.t.Fatalf("after %s, Ready is %q and the node is not as it was:\n%s\nbut:\n%s",
				time.Since(began), is.Ready, strings.Join(before, "\n"), strings.Join(now, "\n"))
		}
		if len(is.Drift) > 0 || is.Transition != nil {
			s.t.Fatalf("after %s: %s", time.Since(began), s.raw())
		}
	}
	if units := c.started(); len(units) > 0 {
		s.t.Errorf("started: %v", units)
	}
	if list := s.rejected(); len(list) > 0 {
		s.t.Errorf("rejected: %+v", list)
	}
}

// A machine boots with a clock three hours ahead or two behind, and NTP sets it once the node runs:
// no check finds a problem, nothing is restarted, and the next change is made. After a step forward
// kubelet's timestamps are old until its next one, and a check before that may report it.
func TestClockIsSetAfterBoot(t *testing.T) {
	for _, tt := range []struct {
		name          string
		by            time.Duration
		ends          bool // the agent does, and the next process checks at once
		grace, within time.Duration
	}{
		{name: "back", by: -3 * time.Hour, within: 4 * time.Hour},
		{name: "back before the agent starts again", by: -3 * time.Hour, ends: true,
			within: 30 * time.Minute},
		{name: "forward", by: 2 * time.Hour, grace: 2 * time.Minute, within: 30 * time.Minute},
		{name: "forward before the agent starts again", by: 2 * time.Hour, ends: true,
			grace: 2 * time.Minute, within: 30 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clocked(t, -tt.by, func(t *testing.T, s *serviceStory, c *clock) {
				s.edit(policy("repair"))
				s.join()
				s.sleep(2 * time.Minute)
				before := s.unwell()
				c.started()
				if tt.ends {
					s.end()
				}
				c.set(tt.by)
				if tt.ends {
					s.start()
				}
				s.sleep(tt.grace)
				s.staysHealthy(c, tt.within, before)
				s.edit(policy("repair"), pods(42))
				s.until(time.Minute, "the change is made", s.takes("42"))
				s.healthy("42")
			})
		})
	}
}

// after returns a function that calls do once, some time after the next start of kubelet.
func (s *serviceStory) after(pause time.Duration, do func()) {
	var once sync.Once
	s.onKubelet(func() error {
		once.Do(func() { time.AfterFunc(pause, do) })
		return nil
	})
}

// phase returns the recorded phase of the transition.
func (s *serviceStory) phase() transition.Phase {
	var t transition.Transition
	data, err := os.ReadFile(filepath.Join(s.root, saved.StateDir, saved.TransitionFile))
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		s.t.Error(err)
	}
	return t.Phase
}

// moments are times after the start of kubelet: before its first heartbeat, and while it settles.
var moments = []time.Duration{500 * time.Millisecond, 3 * time.Second}

// Setting the clock while a machine joins does not affect the join.
func TestClockIsSetDuringJoin(t *testing.T) {
	for _, by := range []time.Duration{-3 * time.Hour, 2 * time.Hour} {
		for _, moment := range moments {
			t.Run(fmt.Sprintf("by %s after %s", by, moment), func(t *testing.T) {
				clocked(t, -by, func(t *testing.T, s *serviceStory, c *clock) {
					starts := s.started()
					s.after(moment, func() { c.set(by) })
					s.start()
					s.until(time.Minute, "the machine is a node", s.isReady)
					s.until(time.Minute, "nothing is under way",
						func() bool { return s.is().Transition == nil })
					s.sleep(2 * time.Minute)
					if n := starts(); n != 1 {
						t.Errorf("kubelet was started %d times", n)
					}
					c.started()
					s.staysHealthy(c, 10*time.Minute, s.unwell())
				})
			})
		}
	}
}

// A join does not wait for a time that it has read before the clock was set back, and that is in
// the future now.
func TestClockGoesBackAfterJoinHasReadIt(t *testing.T) {
	clocked(t, 3*time.Hour, func(t *testing.T, s *serviceStory, c *clock) {
		s.onKubelet(func() error { s.set(func() { s.later = 3 * time.Hour }); return nil })
		s.after(700*time.Millisecond, func() {
			s.set(func() { s.later = 0 })
			c.set(-3 * time.Hour)
		})
		s.start()
		s.until(30*time.Second, "the machine is a node", s.isReady)
		s.sleep(2 * time.Minute)
		c.started()
		s.staysHealthy(c, 10*time.Minute, s.unwell())
	})
}

// Setting the clock while a change waits in its gate does not reject a healthy version: the change
// is committed in time, with the same starts of units.
func TestClockIsSetInGate(t *testing.T) {
	for _, by := range []time.Duration{2 * time.Hour, -3 * time.Hour} {
		for _, moment := range moments {
			for _, ends := range []bool{false, true} {
				t.Run(fmt.Sprintf("by %s after %s agent ends %v", by, moment, ends), func(t *testing.T) {
					clocked(t, -by, func(t *testing.T, s *serviceStory, c *clock) {
						s.join()
						c.started()
						s.edit(pods(41))
						s.until(time.Minute, "the first change is made", s.takes("41"))
						s.healthy("41")
						usual, before := c.started(), s.unwell()
						set := func() {
							if phase := s.phase(); phase != transition.Gate {
								t.Errorf("the clock is set in phase %q", phase)
							}
							c.set(by)
						}
						due := make(chan struct{})
						s.after(moment, func() {
							if !ends {
								set()
							}
							close(due)
						})
						s.edit(pods(42))
						s.until(time.Minute, "kubelet takes the change", s.takes("42"))
						<-due
						if ends {
							s.end()
							set()
							s.start()
						}
						took := s.until(2*time.Minute, "nothing is under way", func() bool {
							return s.condition("ConfigurationAccepted").Status == health.True &&
								s.is().Transition == nil
						})
						if took > 30*time.Second {
							t.Errorf("the gate was passed after %s", took)
						}
						s.healthy("42")
						if units := c.started(); !slices.Equal(units, usual) || len(units) == 0 {
							t.Errorf("started: %v; without the clock being set: %v", units, usual)
						}
						s.staysHealthy(c, 10*time.Minute, before)
					})
				})
			}
		}
	}
}

// A clock that goes forward in the gate does not make a crashing kubelet count as stable.
func TestClockProvesNothing(t *testing.T) {
	clocked(t, -2*time.Hour, func(t *testing.T, s *serviceStory, c *clock) {
		s.join()
		applied := s.pointer("applied")
		s.illWhenChanged(func(w *world) func() {
			crash := time.NewTicker(4 * time.Second)
			ended := make(chan struct{})
			go func() {
				for {
					select {
					case <-crash.C:
						w.systemd.Crash("kubelet.service")
					case <-ended:
						return
					}
				}
			}()
			return func() { crash.Stop(); close(ended) }
		})
		s.after(9*time.Second, func() { c.set(2 * time.Hour) })
		s.edit(pods(42))
		s.until(3*time.Minute, "the change is rejected", func() bool { return len(s.rejected()) > 0 })
		if reason := s.rejected()[0].Reason; !strings.Contains(reason, health.KubeletStable) {
			t.Errorf("rejected because of %q", reason)
		}
		s.until(time.Minute, "rolled back", func() bool { return s.is().Transition == nil })
		s.sleep(2 * time.Minute)
		if now := s.pointer("applied"); now != applied || maxPods(s.root) != "110" {
			t.Errorf("applied is %.12s, want %.12s; kubelet takes %s pods", now, applied, maxPods(s.root))
		}
	})
}
