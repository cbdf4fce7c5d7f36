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

	"github.com/Azure/AKSFlexNode/internal/state"
)

// setFile writes a whole file: under a temporary name, mode and owner before content, digest checked, synced, and then renamed.
func (h *Host) setFile(c state.Change, to state.File, content func(string) (io.ReadCloser, error)) error {
	if err := h.clearDir(c.From, to.Path); err != nil {
		return err
	}
	source, err := open(to, content)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", to.Path, err)
	}
	defer source.Close()
	temp := h.path(tempName(to.Path))
	if err := h.touch("write %s", to.Path); err != nil {
		return err
	}
	if err := h.write(temp, to, source); err != nil {
		return fmt.Errorf("cannot write %s: %w", to.Path, errors.Join(unwrapPath(err), dropTemp(temp)))
	}
	return h.rename(temp, to.Path)
}

// open returns a file's content: its own, or the one that is kept under its digest.
func open(file state.File, content func(string) (io.ReadCloser, error)) (io.ReadCloser, error) {
	if content == nil || state.Digest(file.Content) == file.SHA256 {
		return io.NopCloser(strings.NewReader(file.Content)), nil
	}
	return content(file.SHA256)
}

func (h *Host) write(temp string, to state.File, source io.Reader) error {
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := h.chown(temp, to.UID, to.GID); err != nil {
		return err
	}
	if err := f.Chmod(to.Mode); err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, sum), source); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != to.SHA256 {
		return fmt.Errorf("internal error: content has digest %s, not %s", got, to.SHA256)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

func dropTemp(temp string) error {
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Backup copies a file to dir under the name of its digest, unless it is there already.
func (h *Host) Backup(ctx context.Context, file state.File, dir string) error {
	kept := state.File{Path: filepath.Join(dir, file.SHA256), Mode: 0o600, SHA256: file.SHA256}
	is, err := h.observePath(kept.Path)
	if err != nil {
		return err
	}
	if state.Equal(is, kept) {
		return nil
	}
	return h.setFile(state.Change{From: is, To: kept}, kept, func(string) (io.ReadCloser, error) { return h.Open(file.Path) })
}

func cutPath(key state.Key) (string, bool) { return strings.CutPrefix(string(key), "path:") }
