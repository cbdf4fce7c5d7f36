package change

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/host/systemdtest"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// locked is a verb of the service, at work on a transition.
func locked(t *testing.T, under transition.Transition) *work {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"/var/lib", "/run"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, saved.StateDir), 0o700); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	machine := &host.Host{Root: root, Systemd: systemdtest.New(root), Log: log}
	a := &Agent{Env: inspect.Env{Reader: machine, Root: root, Log: log, InService: true},
		Machine: machine}
	h, err := OpenLocked(t.Context(), a, "agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	if err := h.Store.SaveTransition(t.Context(), under); err != nil {
		t.Fatal(err)
	}
	return &work{Home: h}
}

// While the service waits, other verbs may have the lock. One that goes on with the same transition
// changes what this process remembers of the machine, also if it is killed before it ends.
func TestWaiting(t *testing.T) {
	change := transition.Transition{
		Kind: transition.Change, From: "a", To: "b", Phase: transition.Gate, Attempt: 1,
		Began: inspect.Stamp(),
	}
	failed := errors.New("kubelet does not start")
	tests := []struct {
		name       string
		transition transition.Transition
		meanwhile  func(*Home) error
		superseded bool
	}{
		{"no other process works", change, func(*Home) error { return nil }, false},
		{"a rollback", change.Back(failed, time.Now()), func(*Home) error { return nil }, false},
		{"gone on with", change, func(h *Home) error {
			t := *h.Saved.Transition
			t.Attempt++
			return h.Store.SaveTransition(context.Background(), t)
		}, true},
		{"ended", change, func(h *Home) error {
			return h.Store.ClearTransition(context.Background())
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := locked(t, tt.transition)
			err := w.waiting(t.Context(), func(ctx context.Context) error {
				other, err := OpenLocked(ctx, w.Agent, "bootstrap")
				if err != nil {
					return err
				}
				defer other.Close()
				return tt.meanwhile(other)
			})
			if superseded := errors.Is(err, transition.ErrSuperseded); superseded != tt.superseded ||
				err != nil && !superseded {
				t.Errorf("waiting ended with %v", err)
			}
		})
	}
}

// Whatever the service does, its process must not be ended: it would stay away until the next boot.
func TestServiceHoldsTheLock(t *testing.T) {
	for _, verb := range []string{"unbootstrap", "drift --repair"} {
		w := locked(t, transition.Transition{})
		w.Home.Close()
		h, err := OpenLocked(t.Context(), w.Agent, verb)
		if err != nil {
			t.Fatal(err)
		}
		_, err = OpenLocked(t.Context(), w.Agent, "bootstrap")
		h.Close()
		busy, ok := errors.AsType[*host.LockedError](err)
		if !ok || busy.Holder.Verb != "agent" || !strings.Contains(err.Error(), "stop its service") {
			t.Errorf("while the service runs %s, another process fails with: %v", verb, err)
		}
	}
}
