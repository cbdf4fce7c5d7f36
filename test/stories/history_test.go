package stories

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
)

// back rolls back by hand.
func (w *world) back(name string) error {
	return w.run(func(ctx context.Context, a *change.Agent) error {
		_, err := change.Rollback(ctx, a, name)
		return err
	})
}

// states returns the states of the history, newest first.
func (w *world) states() []string {
	w.t.Helper()
	past, err := inspect.History(w.t.Context(), &w.agent().Env)
	if err != nil {
		w.t.Fatal(err)
	}
	list := make([]string, len(past))
	for i, p := range past {
		list[i] = p.State
	}
	return list
}

// A rollback restores the previous bytes, without any mirror; the daemon does not apply the former
// configuration until a person asks for it. A second rollback goes forward.
func TestRollBackByHand(t *testing.T) {
	t.Parallel()
	const resolver, server = "/run/systemd/resolve/resolv.conf", "nameserver 192.0.2.2\n"
	w := newWorld(t)
	w.write(resolver, server)
	before := w.tree()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.remove(t, resolver)
	if err := w.back(""); err == nil ||
		!strings.Contains(err.Error(), "has no previous generation yet") {
		t.Errorf("without a previous one: %v", err)
	}
	first := w.pointer("applied")
	w.config = w.other(42)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	second := w.pointer("applied")
	if err := os.RemoveAll(w.store); err != nil {
		t.Fatal(err)
	}
	if err := w.back(""); err != nil {
		t.Fatal(err)
	}
	if w.pointer("applied") != first || w.pointer("previous") != second || maxPods(w.root) != "110" {
		t.Errorf("it is %.12s, was %.12s; kubelet takes %s pods", w.pointer("applied"), first,
			maxPods(w.root))
	}
	if w.check().Reconcile { // although the resolver is another one
		t.Error("the daemon goes forward again")
	}
	w.write(resolver, server)
	w.refused = true // kubelet has not what the configuration says
	w.wholly(t, "rolled back")
	if err := w.daemonRuns(nil); err == nil || !strings.Contains(err.Error(), "held back") {
		t.Errorf("the daemon: %v", err)
	}
	if maxPods(w.root) != "110" {
		t.Error("the daemon went forward again")
	}
	if s := w.condition("ConfigurationAccepted"); s.Status != "False" {
		t.Errorf("%+v", s)
	}
	got := w.states()
	if slices.Sort(got); !slices.Equal(got, []string{"applied", "previous", "rejected"}) {
		t.Errorf("the history: %v", got)
	}
	if err := w.back(second[:8]); err != nil {
		t.Fatal(err)
	}
	if maxPods(w.root) != "42" || len(w.rejected()) != 1 {
		t.Errorf("kubelet takes %s pods; %+v", maxPods(w.root), w.rejected())
	}
	if err := w.daemonRuns(nil); err != nil {
		t.Errorf("the daemon: %v", err)
	}
	if err := w.back("previous"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.bootstrap(); err != nil || maxPods(w.root) != "42" {
		t.Errorf("a person asks again: %v, kubelet takes %s pods", err, maxPods(w.root))
	}
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}

// A rollback to a generation that is not healthy any more is rolled back itself, and the
// configuration it came from is accepted as before.
func TestRollBackByHandFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.config = w.other(42)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	applied := w.pointer("applied")
	w.refuse(`"maxPods": 110`)
	if err := w.back(""); !rolledBack(err) {
		t.Fatalf("the error is %v", err)
	}
	if w.pointer("applied") != applied || maxPods(w.root) != "42" {
		t.Errorf("it is %.12s; kubelet takes %s pods", w.pointer("applied"), maxPods(w.root))
	}
	if err := w.daemonRuns(nil); err != nil {
		t.Errorf("the daemon: %v", err)
	}
	if s := w.condition("ConfigurationAccepted"); s.Status != "True" {
		t.Errorf("%+v", s)
	}
}

// After a kill at any write, a rollback by hand ends at one of the two generations, and the daemon
// stops there. The same command finishes it. The long form kills at every write, the short one at
// every fourteenth.
func TestRollBackByHandKilled(t *testing.T) {
	t.Parallel()
	kills(t, 1, 14, func(n int, when string) bool {
		w := newWorld(t)
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		w.config = w.other(42)
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		w.refused = true // kubelet may not have what the configuration says
		if !w.killed(t, n, func() error { return w.back("") }) {
			return false
		}
		again := (n+n/14)%2 == 0
		if again {
			if err := w.back(""); err != nil {
				t.Fatalf("%s, and asked again: %v", when, err)
			}
		}
		err := w.daemonRuns(nil)
		w.wholly(t, when)
		if again && maxPods(w.root) != "110" {
			t.Errorf("%s, and asked again: kubelet takes %s pods", when, maxPods(w.root))
		}
		held := err != nil && strings.Contains(err.Error(), "held back")
		if is := maxPods(w.root); held != (is == "110") || err != nil && !held {
			t.Errorf("%s: kubelet takes %s pods; the daemon says %v", when, is, err)
		}
		return true
	})
}

// The last five generations are kept, with the artifacts of two.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 7 {
		w.config = w.other(40 + n)
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"applied", "previous", "kept", "kept", "kept"}
	if got := w.states(); !slices.Equal(got, want) {
		t.Errorf("the history is %v", got)
	}
	kept, err := os.ReadDir(w.root + saved.StateDir + "/generations")
	if err != nil || len(kept) != 5 {
		t.Errorf("%d generations are kept, %v", len(kept), err)
	}
}

// The difference between two generations is shown in settings and changes, without secrets.
func TestCompare(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := func(password string) func(map[string]any) {
		return func(c map[string]any) {
			c["proxy"] = map[string]any{"http": "http://u:" + password + "@192.0.2.9:3128"}
		}
	}
	w.config = w.configuration(proxy("first-pass"))
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.config = w.configuration(proxy("second-pass"), func(c map[string]any) {
		c["node"].(map[string]any)["maxPods"] = 42
		c["node"].(map[string]any)["labels"] = map[string]any{"example.com/site": "south"}
	})
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	c, err := inspect.Compare(t.Context(), &w.agent().Env, "", "")
	if err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	for _, d := range c.Config {
		fmt.Fprintf(&told, "%s %s %s\n", d.Path, *d.From, *d.To)
	}
	for _, e := range c.Changes {
		fmt.Fprintln(&told, e.Action)
	}
	for _, want := range []string{
		"node.maxPods 110 42\n", `node.labels["example.com/site"] north south`, "another one",
		"restart kubelet.service\n", "label",
	} {
		if !strings.Contains(told.String(), want) {
			t.Errorf("%q is not told:\n%s", want, &told)
		}
	}
	if strings.Contains(told.String(), "-pass") {
		t.Errorf("a secret is shown:\n%s", &told)
	}
	same, err := inspect.Compare(t.Context(), &w.agent().Env, "applied", "")
	if err != nil || len(same.Config)+len(same.Changes) != 0 {
		t.Errorf("compared with itself: %+v, %v", same, err)
	}
}

// A followed node that was rolled back by hand reports that to its provider, and continues with the
// next version.
func TestFollowsAfterRollbackByHand(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.provider.offers(s.delivery("8", monitored, readyTimeout("1m"), pods(42)))
		s.until(2*time.Minute, "the version is reported", func() bool {
			c := s.provider.said().Config
			return c != nil && c.Applied == "8"
		})
		if _, err := change.Rollback(t.Context(), s.agent(), ""); err != nil {
			t.Fatal(err)
		}
		s.until(3*time.Minute, "it is reported", func() bool {
			c := s.provider.said().Config
			return c.Applied == "7" && c.Failed != nil && c.Failed.Version == "8" &&
				c.Failed.Reason == "RolledBack"
		})
		s.sleep(10 * time.Minute)
		s.healthy("110")
		past, err := inspect.History(t.Context(), &s.agent().Env)
		if err != nil || past[0].Version != "7" || past[1].Version != "8" {
			t.Errorf("the history is %+v, %v", past, err)
		}
		s.provider.offers(s.delivery("9", monitored, readyTimeout("1m"), pods(43)))
		s.until(2*time.Minute, "the next version is applied", s.takes("43"))
	})
}

// refuse makes a kubelet whose configuration contains a text exit at its start.
func (w *world) refuse(text string) {
	start := w.systemd.OnStart
	w.refused = true
	w.systemd.OnStart = func(unit, unitText string) error {
		if unit == "kubelet.service" && strings.Contains(kubeletConfig(w.root), text) {
			return errors.New("this kubelet does not start")
		}
		return start(unit, unitText)
	}
}
