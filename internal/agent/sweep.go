package agent

import (
	"context"
	"errors"
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
	// Damaged names the artifacts that are not what was verified, Left those that are still to be
	// read.
	Damaged []string `json:"damaged"`
	Left    []string `json:"left,omitempty"`
}

func (h *home) sweeps() saved.Records { return saved.Records{Disk: h.Machine, Dir: saved.RunDir} }

// sweep reads the store when it is time to, as far as ctx allows; the next one goes on. A node that
// is being changed is not swept.
func (h *home) sweep(ctx context.Context) error {
	if h.saved.Applied == nil || h.saved.Transition != nil {
		return nil
	}
	s, known := h.swept()
	age := now().Sub(s.At) // negative when the clock was set back
	if !known || age < 0 || age >= sweepEvery {
		s = sweep{At: stamp(), Generation: h.saved.Applied.ID, Damaged: s.Damaged,
			Left: slices.Sorted(maps.Keys(h.saved.Applied.Facts.Store))}
	}
	for first := true; len(s.Left) > 0 && ctx.Err() == nil; first = false {
		name := s.Left[0]
		s.Left = s.Left[1:]
		// Noted before it is read: what ends this process is not tried again at once.
		if err := h.sweeps().Save(ctx, sweepFile, s); err != nil {
			return err
		}
		damaged, err := h.unsound(ctx, h.saved.Applied, name, false)
		switch {
		case err != nil && !first: // with more time
			s.Left = append(s.Left, name)
		case err == nil:
			s.Damaged = slices.DeleteFunc(s.Damaged, func(n string) bool { return n == name })
			if damaged {
				s.Damaged = append(s.Damaged, name)
			}
		}
		if err := h.sweeps().Save(context.WithoutCancel(ctx), sweepFile, s); err != nil {
			return err
		}
	}
	return nil
}

// swept is what the last sweep of the applied generation has found; false when there was none.
func (h *home) swept() (sweep, bool) {
	var last sweep
	known, err := h.sweeps().Load(sweepFile, &last)
	if err != nil || !known || h.saved.Applied == nil || last.Generation != h.saved.Applied.ID {
		return sweep{}, false
	}
	return last, true
}

// unsound reports whether an artifact of a generation is missing in the store, or not what was
// verified. proved is for one that has no manifest. The error is that of ctx.
func (h *home) unsound(
	ctx context.Context, g *generation.Generation, name string, proved bool,
) (bool, error) {
	store, id := h.path(node.StoreDir), path.Base(g.Facts.Store[name])
	if len(artifact.Missing(store, []artifact.Artifact{{ID: id}})) > 0 {
		return true, nil
	}
	err := artifact.Verify(store, id, func() error {
		h.beat()
		return ctx.Err()
	})
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return err != nil && (proved || !errors.Is(err, artifact.ErrNoManifest)), nil
}

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
func (w *work) toHeal(ctx context.Context, t *transition.Transition) ([]string, error) {
	after := t.Follows == transition.Leave
	suspects := slices.Sorted(maps.Keys(w.to.Facts.Store))
	if !after {
		last, _ := w.swept()
		suspects = slices.DeleteFunc(slices.Clone(last.Damaged), func(name string) bool {
			_, wanted := w.to.Facts.Store[name]
			return !wanted || len(t.Things) > 0 && !slices.Contains(t.Things, string(storeKey(name)))
		})
	}
	var list []string
	for _, name := range suspects {
		heal, err := w.unsound(ctx, w.to, name, after)
		if err != nil {
			return nil, err
		}
		if heal {
			list = append(list, name)
		}
	}
	return list, nil
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
