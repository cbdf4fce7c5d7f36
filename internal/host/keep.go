package host

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Backup copies a file to dir under the name of its digest, unless it is there already.
func (h *Host) Backup(_ context.Context, file state.File, dir string) error {
	path := filepath.Join(dir, file.SHA256)
	kept := state.File{Path: path, Mode: 0o600, SHA256: file.SHA256}
	is, err := h.observePath(kept.Path)
	if err != nil || state.Equal(is, kept) {
		return err
	}
	return h.setFile(state.Change{From: is, To: kept}, kept, h.contentOf(file))
}

// keptSuffix is added to the name of a file or link whose copy is kept.
const keptSuffix = ".aks-flex-node-kept"

// Keep copies a file or link to a free name beside it, and returns that when the copy is on disk. A
// copy that a killed run has made already is used.
func (h *Host) Keep(ctx context.Context, from state.Resource) (kept string, err error) {
	path := from.Key().Name()
	for n := 0; ; n++ {
		kept = path + keptSuffix
		if n > 0 {
			kept = fmt.Sprintf("%s.%d", kept, n)
		}
		is, err := h.observePath(kept)
		if err != nil {
			return "", err
		}
		c := state.Change{From: is}
		var content contents
		switch from := from.(type) {
		case state.File:
			content = h.contentOf(from)
			from.Path = kept
			c.To = from
		case state.Link:
			from.Path = kept
			c.To = from
		default:
			return "", fmt.Errorf("internal error: cannot keep a copy of a %T", from)
		}
		if state.Equal(is, c.To) {
			return kept, nil
		}
		if _, free := is.(state.Absent); !free {
			continue
		}
		if err := h.Set(ctx, c, content); err != nil {
			return "", fmt.Errorf("cannot keep a copy of %s: %w", path, err)
		}
		return kept, h.Flush()
	}
}

// contentOf opens a file of the machine, whatever digest is asked for: what is written is checked.
func (h *Host) contentOf(file state.File) contents {
	return func(string) (io.ReadCloser, error) { return h.Open(file.Path) }
}
