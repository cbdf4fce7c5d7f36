package stories

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// An earlier release made the directory of the log a part of the node. The log remains all the
// same, with the next change and when the machine is given back.
func TestLogOfAFormerNodeRemains(t *testing.T) {
	const log = "/var/log/aks-flex-node/aks-flex-node.log"
	remains := func(w *world, after string) {
		t.Helper()
		if text, err := os.ReadFile(filepath.Join(w.root, log)); err != nil || string(text) != "begun" {
			t.Errorf("after %s the log is %q, %v", after, text, err)
		}
	}
	for _, changed := range []bool{false, true} {
		w := formerWorld(t, "token")
		w.write(log, "begun")
		if changed {
			w.config = w.changed()
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			remains(w, "a change")
			if report, err := w.drift(false); err != nil || len(report.Changes) > 0 {
				t.Errorf("drift: %+v, %v", report, err)
			}
		}
		if err := w.unbootstrap(); err != nil {
			t.Fatal(err)
		}
		remains(w, "unbootstrap")
		dir := filepath.Dir(filepath.Join(w.root, log))
		if err := errors.Join(os.Remove(filepath.Join(w.root, log)), os.Remove(dir)); err != nil {
			t.Fatal(err)
		}
		w.givenBack(t) // but for the log
	}
}

// The log learns the secrets of a configuration that arrives while the agent runs, before anything
// is done with it.
func TestLogLearnsWhatArrives(t *testing.T) {
	const late = "zzzzzz.zzzzzzzzzzzzzzzz"
	followed(t, func(t *testing.T, s *service, _ string) {
		a := s.agent()
		var known []string
		a.Learn = func(secrets ...string) { known = append(known, secrets...) }
		f := s.following(a)
		offer := s.delivery("8", monitored, func(c map[string]any) {
			c["azure"].(map[string]any)["bootstrapToken"] = map[string]any{"token": late}
		})
		if slices.Contains(known, late) {
			t.Fatal("it is known too early")
		}
		if err := f.Receive(t.Context(), offer.Bundle); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(known, late) {
			t.Error("the log would show the secret")
		}
	})
}
