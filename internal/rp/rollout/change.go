package rollout

import (
	"context"
	"encoding/json"
	"time"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// known holds what was found by comparing the revision that a node runs with the desired one.
type known struct {
	desired, applied, assigned int64
	change                     flexnode.Change
	// kept tells that the applied revision is, same that the assigned one is another than that and
	// differs from the desired one in nothing that disturbs.
	kept, same bool
	window     window
}

// window is a maintenance window; nil is always open.
type window struct{ *config.MaintenanceWindow }

func (w window) open(now time.Time) bool {
	return w.MaintenanceWindow == nil || !w.Opens(now).After(now)
}

// compare reads both revisions. Of one that is not kept any more nothing is known: all that is
// desired is the change.
func (r *Rollout) compare(
	ctx context.Context, key string, n flexnode.Node, applied int64,
) (known, error) {
	k := known{desired: n.Revision, applied: applied, assigned: n.Assigned}
	history, err := r.Store.History.Get(ctx, key)
	if err != nil {
		return k, err
	}
	to, err := r.Store.Kept(ctx, history.Value, n.Revision)
	if err != nil {
		return k, err
	}
	from, err := r.Store.Kept(ctx, history.Value, applied)
	if err != nil {
		return k, err
	}
	k.kept, k.change = from != nil, flexnode.ChangeOf(from, to)
	k.window = windowIn(to)
	if n.Assigned == n.Revision || n.Assigned == applied {
		return k, nil
	}
	offered, err := r.Store.Kept(ctx, history.Value, n.Assigned)
	k.same = offered != nil && flexnode.ChangeOf(offered, to).ID == ""
	return k, err
}

// windowIn is the maintenance window of a configuration.
func windowIn(whole map[string]any) window {
	agent, _ := whole["agent"].(map[string]any)
	policy, _ := agent["upgradePolicy"].(map[string]any)
	given, ok := policy["maintenanceWindow"]
	if !ok {
		return window{}
	}
	text, err := json.Marshal(given)
	if err != nil {
		return window{}
	}
	var w config.MaintenanceWindow
	if json.Unmarshal(text, &w) != nil || w.Start == "" {
		return window{}
	}
	return window{&w}
}
