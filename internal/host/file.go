package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/regular"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// contents opens the content of a file by its digest.
type contents = func(sha256 string) (io.ReadCloser, error)

func (h *Host) digest(path string) (string, error) {
	f, info, err := regular.Open(h.path(path))
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", path, err)
	}
	defer f.Close()
	// Most files are small: a check reads dozens, and io.Copy would make 32 KiB of garbage of each.
	buffer := make([]byte, min(info.Size()+1, 32<<10))
	sum := sha256.New()
	if _, err := io.CopyBuffer(sum, struct{ io.Reader }{f}, buffer); err != nil {
		return "", fmt.Errorf("cannot read %s: %w", path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// setFile writes a file under a temporary name, mode and owner first, checks, syncs and renames it.
func (h *Host) setFile(c state.Change, to state.File, content contents) error {
	if err := h.clearDir(c, to.Path); err != nil {
		return err
	}
	source := io.NopCloser(strings.NewReader(to.Content))
	if content != nil && state.Digest(to.Content) != to.SHA256 {
		var err error
		if source, err = content(to.SHA256); err != nil {
			return fmt.Errorf("cannot write %s: %w", to.Path, err)
		}
	}
	defer source.Close()
	temp := h.path(tempName(to.Path))
	err := h.change("write "+to.Path, func() error { return h.write(temp, to, source) })
	if err != nil {
		return errors.Join(err, h.removeTemp(temp))
	}
	return h.rename(temp, to.Path)
}

func (h *Host) write(temp string, to state.File, source io.Reader) error {
	if err := except(os.Remove(temp), fs.ErrNotExist); err != nil {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := errors.Join(h.chown(temp, to.UID, to.GID), f.Chmod(to.Mode)); err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, sum), source); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != to.SHA256 {
		return fmt.Errorf("internal error: content has digest %s, not %s", got, to.SHA256)
	}
	return errors.Join(f.Sync(), f.Close())
}

func (h *Host) removeTemp(temp string) error {
	return h.change("remove "+temp, func() error {
		return except(os.Remove(temp), fs.ErrNotExist)
	})
}

// Backup copies a file to dir under the name of its digest, unless it is there already.
func (h *Host) Backup(_ context.Context, file state.File, dir string) error {
	kept := state.File{Path: filepath.Join(dir, file.SHA256), Mode: 0o600, SHA256: file.SHA256}
	is, err := h.observePath(kept.Path)
	if err != nil || state.Equal(is, kept) {
		return err
	}
	return h.setFile(state.Change{From: is, To: kept}, kept, h.contentOf(file.Path))
}

// Keep copies a file or link to a free name beside it, unless a killed run has made the copy.
func (h *Host) Keep(ctx context.Context, from state.Resource) (kept string, err error) {
	path := from.Key().Name()
	for n := 0; ; n++ {
		kept = path + ".aks-flex-node-kept"
		if n > 0 {
			kept = fmt.Sprintf("%s.%d", kept, n)
		}
		is, err := h.observePath(kept)
		if err != nil {
			return "", err
		}
		c := state.Change{From: is}
		switch from := from.(type) {
		case state.File:
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
		if err := h.Set(ctx, c, h.contentOf(path)); err != nil {
			return "", fmt.Errorf("cannot keep a copy of %s: %w", path, err)
		}
		return kept, h.Flush()
	}
}

// contentOf opens a file of the machine for any digest: the written content is verified.
func (h *Host) contentOf(path string) contents {
	return func(string) (io.ReadCloser, error) { return h.Open(path) }
}
