package stories

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// has returns the versions that the agent has asked for.
func (p *provider) has() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// answers sets the provider's answer from now on, and wakes the poll.
func (p *provider) answers(held api.ChangeBegun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = held
	close(p.changed)
	p.changed = make(chan struct{})
}

// waits reports whether a poll waits.
func (p *provider) waits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting > 0
}

// noSlot is an answer that holds a change.
var noSlot = api.ChangeBegun{Hold: "NoSlot", Reason: "two others are at it", RetryAfter: 120}

// underWay returns the transition under way; the zero value for none.
func (s *serviceStory) underWay() (t transition.Transition) {
	s.t.Helper()
	if _, err := s.agent().Records().Load(saved.TransitionFile, &t); err != nil {
		s.t.Fatal(err)
	}
	return t
}

// reboots stops the service and starts it again after a time, with another boot in between.
func (s *serviceStory) reboots(after time.Duration) {
	s.t.Helper()
	s.end()
	if err := os.RemoveAll(s.root + saved.RunDir); err != nil {
		s.t.Fatal(err)
	}
	s.sleep(after)
	s.start()
}

// A change that disrupts the node asks once; one that does not never asks.
func TestAsksBeforeItDisrupts(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(42)))
		s.until(time.Minute, "the change is applied", s.takes("42"))
		s.sleep(5 * time.Minute)
		directory := s.provider.offer.Loaded.Config.Artifacts.Directory
		label := func(c map[string]any) {
			c["node"].(map[string]any)["labels"] = map[string]any{"example.com/site": "south"}
			c["artifacts"].(map[string]any)["directory"] = directory
		}
		s.provider.offers(s.delivery("9", monitored, readyTimeout("2m"), pods(42), label))
		s.until(time.Minute, "the label is applied", func() bool {
			return s.cluster.node1().Labels["example.com/site"] == "south"
		})
		s.sleep(5 * time.Minute)
		if asked := s.provider.has(); !slices.Equal(asked, []string{"8"}) {
			t.Errorf("the provider was asked for %q", asked)
		}
	})
}

// What another release of the agent renders in another way, or for another size of the machine,
// waits for a change that may restart kubelet: a label does not bring it. What stays keeps its
// artifacts.
func TestAnotherReleaseRestartsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	memory := func(mib int64) {
		w.facts = func(f *host.Facts) { f.MemoryBytes = mib << 20 }
	}
	memory(7942)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.readyWith("42", "110")
	const unit, line = "/etc/systemd/system/kubelet.service", "CPUAccounting=true\n"
	rendered := w.read(unit)
	former := strings.Replace(rendered, line, "", 1)
	w.renderedAs(unit, former)
	since, kubelet := w.kubeletSince(), kubeletConfig(w.root)
	memory(7932)
	directory := w.config.Artifacts.Directory
	w.config = w.configuration(nodeSetting("labels", map[string]any{"example.com/site": "south"}))
	w.config.Artifacts.Directory = directory
	err := w.daemonReconciles()
	if is := w.cluster.node1().Labels["example.com/site"]; err != nil || is != "south" {
		t.Fatalf("the label is %q, %v", is, err)
	}
	if is := kubeletConfig(w.root); w.read(unit) != former || is != kubelet ||
		!w.kubeletSince().Equal(since) {
		t.Errorf("kubelet has restarted for a label, with the unit\n%s\nand\n%s", w.read(unit), is)
	}
	if store := w.opened().Saved.Applied.Facts.Store; store["former"] == "" {
		t.Errorf("the artifacts are %v", store)
	}
	w.config = w.configuration(nodeSetting("maxPods", 42))
	if err := w.daemonReconciles(); err != nil || w.read(unit) != rendered {
		t.Errorf("%v; the unit is\n%s", err, w.read(unit))
	}
	if store := w.opened().Saved.Applied.Facts.Store; store["former"] != "" {
		t.Errorf("the artifacts are %v", store)
	}
}

// opened returns the records of this machine.
func (w *world) opened() *change.Home {
	w.t.Helper()
	h := change.Unopened(w.agent())
	if err := change.Reopen(w.t.Context(), h); err != nil {
		w.t.Fatal(err)
	}
	return h
}

// renderedAs lets the applied node be of another release, which has rendered a file in another way
// and had one more artifact.
func (w *world) renderedAs(file, text string) {
	w.t.Helper()
	w.write(file, text)
	h := w.opened()
	g, all := *h.Saved.Applied, h.Store.Generations
	g.Facts.Store["former"] = "/opt/former"
	for i, item := range g.Node {
		if f, is := item.Resource.(state.File); is && f.Path == file {
			g.Node[i].Resource = state.NewFile(f.Path, f.Mode, text)
		}
	}
	g, err := generation.New(g.Config, g.Received, g.Facts, g.Node, g.Origin)
	err = errors.Join(err, all.Save(w.t.Context(), g))
	for _, p := range []generation.Pointer{generation.Live, generation.Applied} {
		err = errors.Join(err, all.Point(w.t.Context(), p, g.ID))
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// A change that the provider holds waits, reports the reason, and continues as soon as the provider
// allows it: at once if its poll is answered, else with its next question.
func TestHeldChange(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.provider.answers(noSlot)
		const metrics = "/var/lib/metrics.prom"
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(42), metered("", metrics)))
		s.until(2*time.Minute, "the change waits",
			s.waits("ChangeHeld", "the provider holds the change (NoSlot): two others are at it"))
		s.sleep(20 * time.Minute)
		if n := len(s.provider.has()); s.takes("42")() || n < 8 || n > 12 {
			t.Fatalf("held for 20 minutes, it asked %d times", n)
		}
		if left := s.underWay(); left.Kind != "" {
			t.Errorf("%+v is under way", left)
		}
		s.until(time.Minute, "the node polls", s.provider.waits)
		s.provider.answers(api.ChangeBegun{})
		s.until(5*time.Second, "the change is applied", s.takes("42"))
		s.until(2*time.Minute, "nothing waits", s.nothingWaits)
		if text := s.read(metrics); strings.Contains(text, `result="waits"`) ||
			!strings.Contains(text, `transitions_total{kind="change",result="done"} 1`) {
			t.Errorf("the metrics are\n%s", text)
		}
	})
}

// A provider that is away for longer than any of the agent's timers, in the long form for three
// days, keeps changes from beginning, but no repair.
func TestProviderAway(t *testing.T) {
	away := 25 * time.Hour
	if os.Getenv("LONG") != "" {
		away = 72 * time.Hour
	}
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.provider.answers(noSlot)
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(42), policy("repair")))
		s.until(2*time.Minute, "the change waits", s.waits("ChangeHeld", ""))
		s.provider.set(func() { s.provider.down = true })
		s.until(10*time.Minute, "the change waits for the provider",
			s.waits("ProviderSilent", "the operator of the cluster can help"))
		s.sleep(away)
		if s.takes("42")() {
			t.Fatal("it has begun without the provider")
		}
		s.healthy("110")
		s.provider.set(func() { s.provider.down, s.provider.holds = false, api.ChangeBegun{} })
		s.until(15*time.Minute, "the change is applied", s.takes("42"))
		s.until(2*time.Minute, "nothing waits", s.nothingWaits)
		asked := len(s.provider.has())
		s.provider.set(func() { s.provider.down = true })
		s.write(forwardSysctl, "0\n")
		s.until(3*time.Minute, "the repair", func() bool { return !s.reverted() })
		if n := len(s.provider.has()); n != asked {
			t.Errorf("a repair has asked %d times", n-asked)
		}
	})
}

// A change that has begun continues without the provider after the machine was off for days; one
// that fails then is rolled back. TestKilledAnywhere has the same for every phase.
func TestBegunChangeGoesOn(t *testing.T) {
	for name, fails := range map[string]bool{"it works": false, "it fails": true} {
		t.Run(name, func(t *testing.T) {
			followed(t, func(t *testing.T, s *serviceStory, _ string) {
				s.cluster.run("db")
				s.cluster.set(func() { s.cluster.guarded = []string{"db"} })
				s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(42),
					s.kubernetes("1.35.1", "1.35.1")))
				s.until(2*time.Minute, "the drain", func() bool {
					return s.underWay().Phase == transition.Drain
				})
				s.provider.set(func() { s.provider.down = true })
				s.reboots(72 * time.Hour)
				s.sleep(time.Minute)
				if left := s.underWay(); left.Phase != transition.Drain {
					t.Fatalf("%+v is under way", left)
				}
				s.onKubelet(func() error {
					if fails && s.takes("42")() {
						return errors.New("kubelet does not like this")
					}
					return nil
				})
				s.cluster.set(func() { s.cluster.guarded = nil })
				if fails {
					s.until(15*time.Minute, "the way back", func() bool {
						return s.underWay().Kind == "" && s.takes("110")()
					})
				} else {
					s.until(5*time.Minute, "the change", s.takes("42"))
				}
				s.until(5*time.Minute, "the end", func() bool { return s.underWay().Kind == "" })
				if asked := s.provider.has(); !slices.Equal(asked, []string{"8"}) {
					t.Errorf("the provider was asked for %q", asked)
				}
			})
		})
	}
}

// After a drain that timed out the node waits without a cordon, and asks again before it retries.
func TestBlockedDrainAsksAgain(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.cluster.run("db")
		s.cluster.set(func() { s.cluster.guarded = []string{"db"} })
		s.provider.offers(s.delivery("8", append(s.minor(), monitored)...))
		s.until(5*time.Minute, "the change waits", func() bool {
			_, now := s.cordoned()
			return !now && s.underWay().Kind == "" && s.waits("DrainBlocked", "")()
		})
		s.provider.set(func() { s.provider.holds = noSlot })
		s.cluster.set(func() { s.cluster.guarded = nil })
		s.until(3*time.Minute, "the change is held", s.waits("ChangeHeld", ""))
		if n, now := s.cordoned(); n != 1 || now || len(s.provider.has()) < 2 {
			t.Errorf("cordoned %d times, now %v, asked for %q", n, now, s.provider.has())
		}
		s.provider.answers(api.ChangeBegun{})
		s.until(4*time.Minute, "the change is applied", func() bool {
			return s.kubeletVersion() == "v1.35.1"
		})
	})
}

// A change by a person does not wait for the provider.
func TestPersonDoesNotAsk(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.provider.answers(noSlot)
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(42)))
		s.until(2*time.Minute, "the change waits", s.waits("ChangeHeld", ""))
		asked := len(s.provider.has())
		in, err := s.load()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := change.Bootstrap(t.Context(), s.agent(), in); err != nil {
			t.Fatal(err)
		}
		s.healthy("42")
		if n := len(s.provider.has()); n != asked {
			t.Errorf("it has asked %d times", n-asked)
		}
	})
}
