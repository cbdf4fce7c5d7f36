package stories

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// leave runs unbootstrap with a configuration as its argument.
func (w *world) leave(given *config.Config) (result change.Result, err error) {
	err = w.run(func(ctx context.Context, a *change.Agent) error {
		result, err = change.Unbootstrap(ctx, a, given, change.Leave{})
		return err
	})
	return result, err
}

// A machine that leaves after its cluster has got another CA and address deletes its Node
// nevertheless: it asks Azure again, or uses the given configuration.
func TestLeaveAfterClusterHasChanged(t *testing.T) {
	change := func(w *world) {
		w.cluster.newCA("api-1.example", "api-2.example")
		w.cluster.move("api-2.example:6443")
	}
	t.Run("Azure", func(t *testing.T) {
		t.Parallel()
		w, sim := azureWorld(t)
		before := w.tree()
		w.cluster.newCA("api-1.example")
		w.cluster.move("api-1.example:6443")
		w.publish(sim)
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		change(w)
		w.publish(sim)
		if err := w.unbootstrap(); err != nil {
			t.Error(err)
		}
		w.left(before)
	})
	t.Run("configuration", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		before := w.tree()
		w.cluster.newCA("api-1.example")
		w.cluster.move("api-1.example:6443")
		w.config = w.configuration()
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		change(w)
		given := w.configuration()
		if _, err := w.leave(&given); err != nil {
			t.Error(err)
		}
		w.left(before)
	})
}

// left fails unless the machine is restored and its Node is gone.
func (w *world) left(before string) {
	w.t.Helper()
	if w.cluster.has("edge-1") {
		w.t.Error("the Node is still in the cluster")
	}
	w.same(before)
}

// The secret that enrolled a machine with Arc is not kept, and has long expired when it leaves. The
// configuration given to unbootstrap has the credentials for Azure.
func TestLeaveArcWithAnotherSecret(t *testing.T) {
	for _, first := range []bool{true, false} {
		var off atomic.Bool
		w, sim, _ := modeWorld(t, 6, &off)
		const numbers = "/etc/aks_flex_node.prom"
		w.config = w.modeConfig(modes("")[6].azure, func(c map[string]any) {
			c["agent"].(map[string]any)["metrics"] = map[string]any{"textfile": numbers}
		})
		before := w.tree()
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		w.write(numbers, "# the service has written it\n")
		if len(sim.Machines()) != 1 {
			t.Fatalf("machines of Arc: %v", sim.Machines())
		}
		sim.AddApplication(azuresim.Application{ClientID: clientID, ObjectID: objectID,
			Secrets: []azuresim.Secret{
				{Value: canary, Expires: time.Now().Add(-time.Hour)}, {Value: newSecret},
			}})
		if first {
			_, err := w.leave(&w.config)
			if err == nil || !strings.Contains(err.Error(), "AADSTS7000222") ||
				!strings.Contains(err.Error(), "--config") {
				t.Errorf("the error is %v; want the expired secret and --config", err)
			}
			if _, err := os.Stat(w.root + numbers); !os.IsNotExist(err) {
				t.Errorf("the metrics, which are no longer written: %v", err)
			}
			_, err = w.leave(nil)
			if err == nil || !strings.Contains(err.Error(), "cannot leave Azure Arc: no valid login") ||
				!strings.Contains(err.Error(), "--config") {
				t.Errorf("the error is %v; want that the secret is not kept, and --config", err)
			}
			if len(sim.Machines()) != 1 {
				t.Errorf("machines of Arc: %v", sim.Machines())
			}
		}
		given := w.modeConfig(modes("")[6].another)
		if _, err := w.leave(&given); err != nil {
			t.Errorf("with the secret of now: %v", err)
		}
		if len(sim.Machines()) > 0 {
			t.Errorf("still in Arc: %v", sim.Machines())
		}
		w.left(before)
	}
}

// A failed removal in Azure does not keep the machine a node: it can become one again, and can
// leave again.
func TestArcNotLeft(t *testing.T) {
	w := newWorld(t)
	before := w.tree()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	enrolled := `{"machineId": "/subscriptions/x", "connected": true}`
	w.write(saved.StateDir+"/arc.json", enrolled)
	for range 2 {
		if err := w.unbootstrap(); err == nil || !strings.Contains(err.Error(), "Arc") {
			t.Fatalf("the error is %v", err)
		}
		err := w.daemonRuns(nil)
		if err == nil || transition.Of(err).Kind == transition.Left || w.cluster.has("edge-1") {
			t.Errorf("the daemon ends with %v", err)
		}
	}
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.wholly(t, "a node again")
	_, err := change.Unbootstrap(t.Context(), w.agent(), nil, change.Leave{
		Options: transition.Options{KeepArc: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.same(before)
}

// Records that cannot be read do not prevent leaving: the ledger is enough.
func TestLeavesWithoutRecords(t *testing.T) {
	for _, name := range []string{
		"bindings.json", "credentials.json", "rejected.json", "transition.json", "generations",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before := w.tree()
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(w.root + saved.StateDir + "/" + name); err != nil {
				t.Fatal(err)
			}
			w.write(saved.StateDir+"/"+name, "{ this is not JSON")
			if err := w.unbootstrap(); err != nil {
				t.Fatal(err)
			}
			w.same(before)
		})
	}
}
