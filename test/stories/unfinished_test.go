package stories

import (
	"strings"
	"testing"
)

// A machine that was killed in the middle of its join is finished by bootstrap, and by the daemon.
func TestMigrationOfHalfAJoin(t *testing.T) {
	for name, finish := range finishers() {
		t.Run(name, func(t *testing.T) {
			w := formerWorld(t, "join")
			if _, err := w.agent().Drift(t.Context(), false); err == nil {
				t.Error("half a node was compared with a node")
			}
			if err := finish(w, t); err != nil {
				t.Fatal(err)
			}
			w.finished(t)
		})
	}
	w := formerWorld(t, "join")
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.givenBack(t)
}

// A machine that was killed in the middle of a change becomes what is asked for then: the new
// configuration, or again the one before. A new one that does not work is rolled back.
func TestMigrationOfHalfAChange(t *testing.T) {
	for name, finish := range finishers() {
		for _, machine := range []string{"change", "setting"} {
			for n, pods := range []string{`"maxPods": 110`, `"maxPods": 42`} {
				t.Run(name+" "+machine+" "+pods, func(t *testing.T) {
					w := formerWorld(t, machine)
					kubelet := w.pid("kubelet.service")
					w.config = w.formerConfiguration(n)
					if err := finish(w, t); err != nil {
						t.Fatal(err)
					}
					if name == "daemon" && n == 0 { // it leaves drift to the policy
						if _, err := w.drift(true); err != nil {
							t.Fatal(err)
						}
					}
					text := kubeletConfig(w.root)
					if !strings.Contains(text, pods) || w.pid("kubelet.service") == kubelet {
						t.Errorf("kubelet does not run with %s:\n%s", pods, text)
					}
					w.finished(t)
				})
			}
		}
	}
	w := formerWorld(t, "change")
	w.refuse(`"maxPods": 42`)
	if _, err := w.bootstrap(); !isRollback(err) {
		t.Fatalf("the change ended with %v", err)
	}
	w.finished(t)
}

// finishers are the verbs that finish what a killed run has left.
func finishers() map[string]func(*world, *testing.T) error {
	return map[string]func(*world, *testing.T) error{
		"bootstrap": func(w *world, t *testing.T) error { _, err := w.bootstrapHere(t); return err },
		"daemon":    func(w *world, _ *testing.T) error { return w.daemonReconciles() },
	}
}

// finished fails unless the machine is a whole node, which can be given back.
func (w *world) finished(t *testing.T) {
	t.Helper()
	w.wholly(t, "migrated")
	w.migrated(t)
	labels := w.cluster.nodes["edge-1"].Labels
	for key, value := range w.config.Node.Labels {
		if labels[key] != value && !w.refused {
			t.Errorf("the Node has labels %v; want %v", labels, w.config.Node.Labels)
		}
	}
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.givenBack(t)
}
