package arc

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/hybridcompute/armhybridcompute"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
)

func (w *world) status() Status {
	w.t.Helper()
	a, ctx := w.arc(0)
	s, err := a.Status(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// remove deletes the machine in Azure, behind the agent's back.
func (w *world) remove() {
	w.t.Helper()
	a, ctx := w.arc(0)
	machines := client(a, armhybridcompute.NewMachinesClient, subscription)
	if _, err := machines.Delete(ctx, "edge", "edge-1", nil); err != nil {
		w.t.Fatal(err)
	}
}

// Connected is more than registered.
func TestStatus(t *testing.T) {
	w := newWorld(t)
	if s := w.status(); s != (Status{Agent: Disconnected}) {
		t.Errorf("before the enrolment: %+v", s)
	}
	if err := w.enrol(); err != nil {
		t.Fatal(err)
	}
	if s := w.status(); s.Agent != Connected || s.MachineID() != w.record.MachineID {
		t.Errorf("enrolled: %+v", s)
	}
	w.sim.Adjust(func(k *azuresim.Knobs) {
		k.Faults = map[azuresim.Service]azuresim.Fault{azuresim.Entra: {Outage: true}}
	})
	if s := w.status(); s.Agent != Disconnected || s.MachineID() == "" {
		t.Errorf("without Azure: %+v", s)
	}
	w.sim.Adjust(func(k *azuresim.Knobs) { k.Faults = nil })
	w.remove()
	if s := w.status(); s.Agent != Disconnected || s.MachineID() == "" {
		t.Errorf("removed in Azure: %+v", s)
	}
	w.absent = true
	a, ctx := w.arc(0)
	if _, err := a.Status(ctx); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("without the agent: %v", err)
	}
}

// Enrol mends what has been lost since.
func TestEnrolMendsWhatIsLost(t *testing.T) {
	tests := []struct {
		name string
		lose func(w *world)
	}{
		{"nothing", func(*world) {}},
		{"the machine in Azure", (*world).remove},
		{"the machine's connection", func(w *world) {
			if err := w.agent.Disconnect(w.t.Context(), "", true); err != nil {
				w.t.Fatal(err)
			}
		}},
		{"a role", func(w *world) {
			a, ctx := w.arc(0)
			if err := a.unassign(ctx, w.record.Assignments[1]); err != nil {
				w.t.Fatal(err)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if err := w.enrol(); err != nil {
				t.Fatal(err)
			}
			tt.lose(w)
			w.enrolAndLeave("having lost " + tt.name)
		})
	}
}

// The field is called status or agentStatus.
func TestStatusHasTwoNames(t *testing.T) {
	for _, name := range []string{"status", "agentStatus"} {
		a := Arc{Machine: says(`{"` + name + `": "Expired"}`)}
		if got, err := a.Status(t.Context()); got.Agent != Expired || err != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// says is an azcmagent that prints a text.
type says string

func (s says) Run(context.Context, time.Duration, []byte, ...string) ([]byte, error) {
	return []byte(s), nil
}

// Our own machine is ours whatever the case of its id, and is disconnected in the end.
func TestMachineIsComparedWithoutCase(t *testing.T) {
	w := newWorld(t)
	if err := w.enrol(); err != nil {
		t.Fatal(err)
	}
	w.record.MachineID = strings.Replace(w.record.MachineID, "resourceGroups/edge",
		"resourceGroups/EDGE", 1)
	w.enrolAndLeave("with the resource group in capitals")
}

// A machine that others have connected and that Azure does not know is not ours to repair.
func TestForeignMachineThatIsLost(t *testing.T) {
	w := newWorld(t)
	a, ctx := w.arc(0)
	if err := a.connect(ctx); err != nil {
		t.Fatal(err)
	}
	w.remove()
	err := w.enrol()
	if err == nil || !strings.Contains(err.Error(), "azcmagent disconnect --force-local-only") {
		t.Errorf("%v", err)
	}
	if _, registered := w.agent.Show(); !registered {
		t.Error("the machine was disconnected")
	}
}

// Leaving goes on where the Arc agent has been removed.
func TestLeaveWithoutTheAgent(t *testing.T) {
	w := newWorld(t)
	if err := w.enrol(); err != nil {
		t.Fatal(err)
	}
	w.absent = true
	a, ctx := w.arc(0)
	if err := a.Leave(ctx, w.record); err != nil || w.record.Connected || w.given() != 0 {
		t.Errorf("%v, %+v", err, w.record)
	}
}

// A name that another machine has in Azure is not taken from it, neither by the enrolment nor when
// the machine leaves.
func TestNameIsTaken(t *testing.T) {
	w := newWorld(t)
	a, ctx := w.arc(0)
	if err := a.connect(ctx); err != nil {
		t.Fatal(err)
	}
	w.agent.Dir = t.TempDir() // this is another machine
	err := w.enrol()
	if err == nil || !strings.Contains(err.Error(), "azure.arc.machineName") {
		t.Errorf("%v", err)
	}
	if w.record.Connected {
		if err := a.Leave(ctx, w.record); err != nil {
			t.Error(err)
		}
	}
	if len(w.sim.Machines()) != 1 {
		t.Errorf("machines %v", w.sim.Machines())
	}
}

// Leaving leaves a connection alone that others have made since, and does not need the resource
// group of a role assignment to be there still.
func TestLeaveAfterOthers(t *testing.T) {
	w := newWorld(t)
	if err := w.enrol(); err != nil {
		t.Fatal(err)
	}
	a, ctx := w.arc(0)
	if err := w.agent.Disconnect(ctx, "", true); err != nil {
		t.Fatal(err)
	}
	a.Config.Arc.MachineName = "theirs"
	if err := a.connect(ctx); err != nil {
		t.Fatal(err)
	}
	w.record.Assignments[0].Scope = "/subscriptions/" + subscription + "/resourceGroups/gone" +
		"/providers/Microsoft.ContainerService/managedClusters/prod"
	if err := a.Leave(ctx, w.record); err != nil {
		t.Error(err)
	}
	if is, connected := w.agent.Show(); !connected || len(w.record.Assignments) > 0 {
		t.Errorf("connected %t as %s, record %+v", connected, is.ResourceName, w.record)
	}
}

// A machine that has replaced this one under its name is not deleted.
func TestLeaveAfterReplacement(t *testing.T) {
	w := newWorld(t)
	if err := w.enrol(); err != nil {
		t.Fatal(err)
	}
	a, ctx := w.arc(0)
	ours := w.record.Principal
	w.sim.RemoveMachines()
	mine := w.agent
	w.agent.Dir = t.TempDir()
	if err := a.connect(ctx); err != nil {
		t.Fatal(err)
	}
	w.agent = mine
	if err := a.Leave(ctx, w.record); err != nil || ours == "" {
		t.Errorf("our principal was %q: %v", ours, err)
	}
	if left := w.sim.Machines(); len(left) != 1 {
		t.Errorf("the machines are %v", left)
	}
	if _, connected := w.agent.Show(); connected || w.record.Connected {
		t.Errorf("still connected, record %+v", w.record)
	}
}
