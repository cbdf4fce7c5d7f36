package stories

import (
	"context"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// A machine that was enrolled with Azure Arc, and whose resource was deleted, leaves Arc with the
// secret that the provider has kept. Where that cannot be done, the provider hears what is left.
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
			w, sim, _ := arcWorld(t, "token")
			before := w.tree()
			d := w.delivery("7", w.azure(modes("")[6].azure), func(c map[string]any) {
				c["continuousMonitoring"] = true
				c["agent"].(map[string]any)["monitoring"] = map[string]any{
					"endpoint": "https://provider.example"}
			})
			w.provider = &provider{offer: d, changed: make(chan struct{}), leaves: func() {},
				arcSecret: x.secret}
			if err := w.receive(d); err != nil {
				t.Fatal(err)
			}
			if _, err := w.joinAsDelivered(); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(w.tree(), canary) || len(sim.Machines()) != 1 {
				t.Fatalf("the secret is kept, or the machine is not enrolled: %v", sim.Machines())
			}
			err := w.run(func(ctx context.Context, a *change.Agent) error {
				_, err := change.Unbootstrap(ctx, a, nil, change.Leave{
					Options: transition.Options{Waits: true, Deleted: "u"}})
				return err
			})
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
			if x.left == 0 {
				w.same(before)
			}
		})
	}
}
