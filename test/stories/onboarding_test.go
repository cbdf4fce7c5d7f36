package stories

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// asDelivered reads the provider's delivered configuration, like every command.
func (w *world) asDelivered() change.Input {
	w.t.Helper()
	before, err := inspect.Applied(w.t.Context(), &w.agent().Env)
	if err != nil {
		w.t.Fatal(err)
	}
	text := []byte(w.bundle())
	read, err := config.Parse(text,
		config.Host{HostName: "edge-1", Arch: runtime.GOARCH, Before: before})
	if err != nil {
		w.t.Fatal(err)
	}
	c := read.Config
	c.Agent.ReadyTimeout = "1m"
	w.config = c // what is read again for the secret
	return change.Input{Config: c, Document: read.Document, Origin: "url", Resource: read.Resource}
}

// receive takes a delivery, and joins with it or handles its changes.
func (w *world) receive(d change.Delivery) error {
	return w.run(func(ctx context.Context, a *change.Agent) error {
		return change.Receive(ctx, a, d)
	})
}

func (w *world) joinAsDelivered() (result change.Result, err error) {
	in := w.asDelivered()
	err = w.run(func(ctx context.Context, a *change.Agent) error {
		result, err = change.Bootstrap(ctx, a, in)
		return err
	})
	return result, err
}

// The secret that enrols an Arc machine comes with the configuration of a flexNodeConfig, and is
// erased everywhere once the node is healthy, without a change of the node. To enrol again, the
// configuration URL brings it again; to leave, a file.
func TestOnboardingSecretIsErased(t *testing.T) {
	w, sim, _ := arcWorld(t, "token")
	before := w.tree()
	d := w.delivery("7", w.azure(modes("")[6].azure))
	if err := w.receive(d); err != nil {
		t.Fatal(err)
	}
	if _, err := w.joinAsDelivered(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(w.tree(), canary) {
		t.Fatal("the secret that has enrolled the machine is kept")
	}
	if !strings.Contains(w.bundle(), clientID) || len(sim.Machines()) != 1 {
		t.Errorf("the bundle is %s, machines %v", w.bundle(), sim.Machines())
	}
	joined := w.tree()
	if _, err := w.joinAsDelivered(); err != nil {
		t.Error(err)
	}
	if err := w.receive(d); err != nil { // its URL again
		t.Error(err)
	}
	w.same(joined)

	sim.RemoveMachines()
	if _, err := w.joinAsDelivered(); err == nil || !strings.Contains(err.Error(), "az login") {
		t.Errorf("without the secret: %v", err)
	}
	if err := w.receive(d); err != nil || !strings.Contains(w.bundle(), canary) {
		t.Errorf("the secret is needed and was not taken: %v", err)
	}
	if _, err := w.joinAsDelivered(); err != nil {
		t.Error(err)
	}
	w.repaired(sim, "with the configuration URL")
	if strings.Contains(w.tree(), canary) {
		t.Error("the secret that has enrolled the machine again is kept")
	}

	w.asDelivered()
	err := w.unbootstrap()
	if err == nil || !strings.Contains(err.Error(), "--config") || len(sim.Machines()) != 1 {
		t.Errorf("leaving without the secret: %v, machines %v", err, sim.Machines())
	}
	w.config = d.Loaded.Config // --config FILE
	if err := w.unbootstrap(); err != nil || len(sim.Machines()) != 0 {
		t.Errorf("leaving with it: %v, machines %v", err, sim.Machines())
	}
	w.same(before)
}

// A join that was interrupted before the machine was enrolled continues with the present secret:
// another one makes no other document.
func TestOnboardingSecretIsReplaced(t *testing.T) {
	for n := 20; ; n++ {
		w, sim, _ := arcWorld(t, "token")
		d := w.delivery("7", w.azure(modes("")[6].azure))
		if err := w.receive(d); err != nil {
			t.Fatal(err)
		}
		w.blow(n)
		_, err := w.joinAsDelivered()
		w.blow(-1)
		if err == nil || len(sim.Machines()) > 0 {
			t.Fatal("no run was killed before the machine was enrolled")
		}
		left, _ := os.ReadFile(filepath.Join(w.root, saved.StateDir, "transition.json"))
		if !strings.Contains(string(left), `"enrol"`) {
			continue
		}
		sim.AddApplication(azuresim.Application{ClientID: clientID, ObjectID: objectID,
			Secrets: []azuresim.Secret{{Value: newSecret}}})
		if _, err := w.joinAsDelivered(); err == nil {
			t.Error("joined with a secret that is none any more")
		}
		d.Bundle = bytes.ReplaceAll(d.Bundle, []byte(canary), []byte(newSecret))
		if err := w.receive(d); err != nil {
			t.Fatal(err)
		}
		if _, err := w.joinAsDelivered(); err != nil {
			t.Errorf("with the right secret: %v", err)
		}
		if tree := w.tree(); strings.Contains(tree, canary) || strings.Contains(tree, newSecret) {
			t.Error("a secret is kept")
		}
		return
	}
}

// After a kill during its erasure, the next run erases the secret.
func TestOnboardingSecretIsErasedAfterAKill(t *testing.T) {
	world := func() *world {
		w, _, _ := arcWorld(t, "token")
		if err := w.receive(w.delivery("7", w.azure(modes("")[6].azure))); err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := world()
	first := w.touched()
	if _, err := w.joinAsDelivered(); err != nil {
		t.Fatal(err)
	}
	all, kept := w.touched()-first, 0
	for n := all - 1; n > all-24; n -= 3 {
		w := world()
		if !w.killed(t, n, func() error { _, err := w.joinAsDelivered(); return err }) {
			t.Fatalf("it ends before touch %d", n)
		}
		if strings.Contains(w.tree(), canary) {
			kept++
		}
		if _, err := w.joinAsDelivered(); err != nil {
			t.Errorf("killed at %d: %v", n, err)
		}
		if strings.Contains(w.tree(), canary) {
			t.Errorf("killed at %d, the secret is kept", n)
		}
	}
	if kept == 0 {
		t.Error("no run was killed before the secret was erased")
	}
}
