package agent

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/artifact"
	"github.com/Azure/AKSFlexNode/internal/generation"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// sweepEvery is how often the artifacts in the store are compared with what was verified when they
// were fetched: all of it is read.
const sweepEvery = 24 * time.Hour

// sweepFile is below RunDir: a machine that has booted is swept again.
const sweepFile = "sweep.json"

// sweep is what was found when the artifacts of a generation were last read.
type sweep struct {
	At         time.Time `json:"at"`
	Generation string    `json:"generation"`
	// Damaged names the artifacts that are not what was verified.
	Damaged []string `json:"damaged"`
}

func (h *home) sweeps() saved.Records { return saved.Records{Disk: h.Machine, Dir: saved.RunDir} }

// sweep reads the store when it is time to. A node that is being changed is not swept.
func (h *home) sweep(ctx context.Context) error {
	if h.saved.Applied == nil || h.saved.Transition != nil {
		return nil
	}
	last, known := h.swept()
	if known && now().Sub(last.At) < sweepEvery {
		return nil
	}
	h.beat()
	g := h.saved.Applied
	next := sweep{At: stamp(), Generation: g.ID, Damaged: h.unsound(g, isDamaged)}
	h.beat()
	return h.sweeps().Save(ctx, sweepFile, next)
}

// swept is what the last sweep of the applied generation has found; false when there was none.
func (h *home) swept() (sweep, bool) {
	var last sweep
	known, err := h.sweeps().Load(sweepFile, &last)
	return last, err == nil && known && h.saved.Applied != nil && last.Generation == h.saved.Applied.ID
}

// unsound names the artifacts of a generation that are missing in the store or that is tells of.
func (h *home) unsound(g *generation.Generation, is func(store, id string) bool) []string {
	store := h.path(node.StoreDir)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(g.Facts.Store)), func(name string) bool {
		a := artifact.Artifact{ID: path.Base(g.Facts.Store[name])}
		missing := len(artifact.Missing(store, []artifact.Artifact{a})) > 0
		return !missing && !is(store, a.ID)
	})
}

// isDamaged tells of an entry that is not what was verified, but not of one of which nobody can
// tell.
func isDamaged(store, id string) bool { return len(artifact.Damaged(store, []string{id})) > 0 }

// isUnproved tells also of that.
func isUnproved(store, id string) bool { return artifact.Verify(store, id) != nil }

// storeEvidence is the last sweep, if there was one.
func (h *home) storeEvidence() health.Answer[[]string] {
	last, known := h.swept()
	if !known {
		return health.Answer[[]string]{}
	}
	return health.Answered(last.Damaged, nil)
}

// storeKey names an artifact among the things that drift.
func storeKey(name string) state.Key { return state.Key("store:" + name) }

// storeDrift lists the damaged artifacts as drift.
func (h *home) storeDrift() []Entry {
	last, _ := h.swept()
	list := make([]Entry, 0, len(last.Damaged))
	for _, name := range last.Damaged {
		e := Entry{
			Key: storeKey(name), Action: "fetch " + name + " again",
			Expected: "as it was verified when it was fetched", Found: "damaged",
		}
		for _, item := range linksInto(h.saved.Applied, name) {
			e.Step = item.Step
		}
		list = append(list, e)
	}
	return list
}

// linksInto are the links of a generation that lead into an artifact.
func linksInto(g *generation.Generation, name string) []state.Item {
	return slices.DeleteFunc(slices.Clone(g.Node), func(item state.Item) bool {
		link, ok := item.Resource.(state.Link)
		return !ok || !strings.HasPrefix(link.Target, g.Facts.Store[name]+"/")
	})
}

// toHeal names the artifacts that have to be fetched although they are in the store: what the last
// sweep has found, and what an unbootstrap that did not end may have removed half of.
func (w *work) toHeal(t *transition.Transition) []string {
	if t.Follows == transition.Leave {
		return w.unsound(w.to, isUnproved)
	}
	last, _ := w.swept()
	return slices.DeleteFunc(slices.Clone(last.Damaged), func(name string) bool {
		chosen := len(t.Things) == 0 || slices.Contains(t.Things, string(storeKey(name)))
		return !chosen || !isDamaged(w.path(node.StoreDir), path.Base(w.to.Facts.Store[name]))
	})
}

// oweHealed has the units restart that run what is about to be replaced.
func (w *work) oweHealed(ctx context.Context) error {
	var units []string
	for _, name := range w.healing {
		for _, item := range linksInto(w.to, name) {
			units = append(units, item.Owes...)
		}
	}
	return w.engine.Owe(ctx, units...)
}

// healed notes that the artifacts are what was verified.
func (w *work) healed(ctx context.Context) error {
	last, known := w.swept()
	if !known || len(w.healing) == 0 {
		return nil
	}
	last.Damaged = slices.DeleteFunc(last.Damaged, func(name string) bool {
		return slices.Contains(w.healing, name)
	})
	return w.sweeps().Save(ctx, sweepFile, last)
}
