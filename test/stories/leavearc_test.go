package stories

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/access"
	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// A machine that was enrolled with Azure Arc, and whose resource was deleted, leaves Arc with the
// secret that the provider has kept. If that fails, it reports to the provider what is left.
func TestDeletedArcMachineLeaves(t *testing.T) {
	for name, x := range map[string]struct {
		secret string
		left   int
	}{
		"kept":     {canary, 0},
		"not kept": {"", 1},
		"replaced": {"replaced", 1},
	} {
		t.Run(name, func(t *testing.T) {
			w, sim := arcOfAProvider(t, x.secret)
			before := w.tree()
			w.joinArc(t, sim)
			err := w.leaveDeleted()
			if len(sim.Machines()) != x.left {
				t.Errorf("Arc machines: %v", sim.Machines())
			}
			said := w.provider.arcLeft
			if said == nil || (said.Problem != "") != (x.left > 0) {
				t.Errorf("the provider was told %+v", said)
			}
			names := err != nil && strings.Contains(err.Error(), "az connectedmachine delete")
			if names != (x.left > 0) || x.left == 0 && err != nil {
				t.Errorf("it ended with %v", err)
			}
			if strings.Contains(fmt.Sprint(err, said), "unbootstrap") { // it has nothing to do by now
				t.Errorf("it ended with %v, and the provider was told %+v", err, said)
			}
			if x.left == 0 {
				w.same(before)
			}
		})
	}
}

// arcOfAProvider returns a machine that a provider joins as an Arc machine. The provider keeps a
// secret.
func arcOfAProvider(
	t *testing.T, secret string, more ...func(map[string]any),
) (*world, *azuresim.Sim) {
	t.Helper()
	w, sim, _ := arcWorld(t, "token")
	w.provider = &provider{changed: make(chan struct{}), leaves: func() {}, arcSecret: secret}
	w.provider.offer = w.delivery("7", append(more, w.azure(modes("")[6].azure), polled)...)
	return w, sim
}

// polled has the agent poll the provider.
func polled(c map[string]any) {
	c["continuousMonitoring"] = true
	c["agent"].(map[string]any)["monitoring"] = map[string]any{"endpoint": "https://provider.example"}
}

// joinArc joins it.
func (w *world) joinArc(t *testing.T, sim *azuresim.Sim) {
	t.Helper()
	if err := w.receive(w.provider.offer); err != nil {
		t.Fatal(err)
	}
	if _, err := w.joinAsDelivered(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(w.tree(), canary) || len(sim.Machines()) != 1 {
		t.Fatalf("the secret is kept, or the machine is not enrolled: %v", sim.Machines())
	}
}

// leaveDeleted gives the machine back because its resource was deleted.
func (w *world) leaveDeleted() error {
	return w.run(func(ctx context.Context, a *change.Agent) error {
		_, err := change.Unbootstrap(ctx, a, nil, change.Leave{
			Options: transition.Options{Waits: true, Deleted: "u"}})
		return err
	})
}

// A node that the agent has enrolled with Arc keeps its method until it leaves: with another one it
// could delete neither its Arc machine nor that machine's roles.
func TestArcIsNotLeftByAChange(t *testing.T) {
	w, sim := arcOfAProvider(t, "")
	if err := w.receive(w.delivery("6", polled)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.joinAsDelivered(); err != nil {
		t.Fatal(err)
	}
	token := w.pointer("applied")
	w.joinArc(t, sim)
	arc, since := w.pointer("applied"), w.kubeletSince()
	if err := w.receive(w.delivery("8", polled)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{
		"delivered": func() error { _, err := w.joinAsDelivered(); return err },
		"rollback":  func() error { return w.back(token) },
	} {
		const want = "cannot leave Azure Arc by a change: run `aks-flex-node unbootstrap` first"
		if err := change(); !refused(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.goesOn(arc, since)
}

// A machine that a failed change has enrolled with Arc reports to the provider what is left there.
func TestArcOfAFailedChange(t *testing.T) {
	w, sim := arcOfAProvider(t, "", pods(42))
	arc := w.provider.offer
	if err := w.receive(w.delivery("6", polled)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.joinAsDelivered(); err != nil {
		t.Fatal(err)
	}
	w.refuseChangedKubelet()
	if err := w.receive(arc); err != nil {
		t.Fatal(err)
	}
	if _, err := w.joinAsDelivered(); !rolledBack(err) || len(sim.Machines()) != 1 {
		t.Fatalf("%v; Arc machines: %v", err, sim.Machines())
	}
	err := w.leaveDeleted()
	if err == nil || !strings.Contains(err.Error(), "az connectedmachine delete") {
		t.Errorf("it ended with %v", err)
	}
	if said := w.provider.arcLeft; said == nil || said.Problem == "" ||
		!strings.HasSuffix(said.MachineID, "/machines/edge-1") {
		t.Errorf("the provider was told %+v", said)
	}
}

// A machine that is given back by hand tells the provider too, before its resource is deleted.
func TestArcMachineLeavesByHand(t *testing.T) {
	w, sim := arcOfAProvider(t, "")
	w.joinArc(t, sim)
	w.config.Azure = w.provider.offer.Loaded.Config.Azure
	if err := w.unbootstrap(); err != nil || len(sim.Machines()) > 0 {
		t.Fatalf("%v; Arc machines: %v", err, sim.Machines())
	}
	if said := w.provider.arcLeft; said == nil || said.Problem != "" {
		t.Errorf("the provider was told %+v", said)
	}
}

// A machine that cannot leave Arc and is killed while it removes its records does not report later
// that it has left: it would drop out of the list of resources left in Azure.
func TestKilledAfterArcIsLeft(t *testing.T) {
	w, sim := arcOfAProvider(t, "")
	w.joinArc(t, sim)
	before := w.touched()
	if err := w.leaveDeleted(); err == nil {
		t.Fatal("it has left Arc")
	}
	all := w.touched() - before
	step := 3
	if long() {
		step = 1
	}
	for n := all - 1; ; n -= step {
		w, sim := arcOfAProvider(t, "")
		w.joinArc(t, sim)
		if !w.killed(t, n, w.leaveDeleted) {
			t.Fatal("it ends before it is killed")
		}
		recorded := w.exists(saved.StateDir + "/" + access.RecordFile)
		if err := w.leaveDeleted(); err != nil && !recorded {
			t.Errorf("killed at %d, and again: %v", n, err)
		}
		if said := w.provider.arcLeft; said == nil || said.Problem == "" {
			t.Errorf("killed at %d of %d, it has said %+v", n, all, said)
		}
		if w.exists(saved.StateDir) {
			t.Errorf("killed at %d, records remain", n)
		}
		if recorded {
			break
		}
	}
}
