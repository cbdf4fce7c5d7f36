package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// observeResidue observes "kind:match". Control groups of systemd are found by their unit too: a
// slice may be loaded after its control group has gone.
func (h *Host) observeResidue(ctx context.Context, name string) (state.Resource, error) {
	kind, match, _ := strings.Cut(name, ":")
	r := state.Residue{Kind: state.ResidueKind(kind), Match: match}
	if r.Kind == state.Files || r.Kind == state.Trees {
		return h.observeFiles(r)
	}
	found, err := h.Kernel.Find(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.Kind == state.Cgroups {
		units, err := h.Systemd.Units(ctx, match)
		if err != nil {
			return nil, fmt.Errorf("cannot observe %s: %w", match, err)
		}
		found = append(found, units...)
		slices.Sort(found)
	}
	r.Found = found
	return r, nil
}

// setResidue removes what has come of a residue since it was remembered.
func (h *Host) setResidue(ctx context.Context, c state.Change, to state.Residue) error {
	if !c.Undo {
		return nil
	}
	is, err := h.observeResidue(ctx, string(to.Kind)+":"+to.Match)
	if err != nil {
		return err
	}
	found := slices.DeleteFunc(is.(state.Residue).Found, func(s string) bool {
		return slices.Contains(to.Found, s)
	})
	if to.Kind == state.Cgroups && len(found) > 0 {
		if err := h.stop(ctx, to.Match); err != nil {
			return err
		}
		found = slices.DeleteFunc(found, func(s string) bool { return s == to.Match })
	}
	if len(found) == 0 {
		return nil
	}
	if to.Kind == state.Trees {
		return h.purge(to.Match, nil)
	}
	if to.Kind == state.Files {
		return h.remove(to.Match, 0)
	}
	return h.change(fmt.Sprintf("remove %s %s", to.Kind, strings.Join(found, ", ")), func() error {
		return h.Kernel.Clear(ctx, to, found)
	})
}

// observeFiles finds the file or the directory of a residue.
func (h *Host) observeFiles(r state.Residue) (state.Resource, error) {
	info, err := os.Lstat(h.path(r.Match))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot observe %s: %w", r.Match, err)
	}
	if err == nil && (info.Mode().IsRegular() && r.Kind == state.Files ||
		info.IsDir() && r.Kind == state.Trees) {
		r.Found = []string{r.Match}
	}
	return r, nil
}

// left is how the running kernel finds and clears what is left of each kind.
var left = map[state.ResidueKind]struct {
	find  func(l linux, ctx context.Context, match string) ([]string, error)
	clear func(l linux, ctx context.Context, match string, found []string) error
}{
	state.Interfaces: {linux.findInterface, linux.clearInterfaces},
	state.Chains:     {linux.findChains, linux.clearChains},
	state.Tables:     {linux.findTables, linux.clearTables},
	state.Cgroups:    {linux.findCgroups, linux.clearCgroups},
	state.Processes:  {linux.findProcesses, linux.clearProcesses},
	state.Mounts:     {linux.findMounts, linux.clearMounts},
}

func (l linux) Find(ctx context.Context, r state.Residue) ([]string, error) {
	kind, known := left[r.Kind]
	if !known {
		return nil, fmt.Errorf("internal error: residue of unknown kind %s", r.Kind)
	}
	found, err := kind.find(l, ctx, r.Match)
	slices.Sort(found)
	return slices.Compact(found), err
}

func (l linux) Clear(ctx context.Context, r state.Residue, found []string) error {
	kind, known := left[r.Kind]
	if !known {
		return fmt.Errorf("internal error: residue of unknown kind %s", r.Kind)
	}
	return kind.clear(l, ctx, r.Match, found)
}
