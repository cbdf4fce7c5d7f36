package stories

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// A power cut also loses a killed run's writes that were not synced: names that were created,
// replaced or removed. The rest is finished or given back, as after any kill. The long form cuts at
// every point, the short one at every fourteenth.
func TestLostWritesAnywhere(t *testing.T) {
	t.Parallel()
	for i, c := range followedCampaigns() {
		c.cut, c.killed = true, nil
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.killedAnywhere(t, i, 14)
		})
	}
}

// disk undoes, at a power cut, the changes of names since the last sync.
type disk struct {
	mu       sync.Mutex
	unsynced []name
}

// name holds the contents of a path before it was changed.
type name struct {
	path, text, target string
	mode               fs.FileMode
	was                bool
}

// cutMachine is a machine with such a disk.
type cutMachine struct {
	change.Machine
	root string
	disk *disk
}

// Set implements change.Machine.
func (m *cutMachine) Set(
	ctx context.Context, c state.Change, content func(string) (io.ReadCloser, error),
) error {
	before, err := m.before(c)
	if err != nil {
		return err
	}
	err = m.Machine.Set(ctx, c, content)
	if err == nil && before.path != "" {
		m.disk.mu.Lock()
		defer m.disk.mu.Unlock()
		m.disk.unsynced = append(m.disk.unsynced, before)
	}
	return err
}

// before returns the content that a change of a name replaces; an empty path if no name changes. Of
// a directory that is removed with its content, only the directory itself comes back.
func (m *cutMachine) before(c state.Change) (name, error) {
	path, ok := strings.CutPrefix(string(c.To.Key()), "path:")
	if !ok || strings.HasPrefix(path, "/run/") || strings.HasPrefix(path, "/proc/") {
		return name{}, nil
	}
	is := name{path: filepath.Join(m.root, path)}
	info, err := os.Lstat(is.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return is, nil
	case err != nil:
		return is, err
	}
	is.was, is.mode = true, info.Mode()
	_, removed := c.To.(state.Absent)
	switch {
	case info.IsDir() && removed:
		return is, nil
	case info.IsDir():
		return name{}, nil
	}
	if is.mode.Type() == fs.ModeSymlink {
		is.target, err = os.Readlink(is.path)
		return is, err
	}
	text, err := os.ReadFile(is.path)
	is.text = string(text)
	return is, err
}

// Flush implements change.Machine.
func (m *cutMachine) Flush() error {
	if err := m.Machine.Flush(); err != nil {
		return err
	}
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	m.disk.unsynced = nil
	return nil
}

// cut restores names to their content before they were changed: all that are not synced, or every
// second one.
func (d *disk) cut(all bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for i := len(d.unsynced) - 1; i >= 0; i-- {
		if all || i%2 == 0 {
			errs = append(errs, d.unsynced[i].restore())
		}
	}
	d.unsynced = nil
	return errors.Join(errs...)
}

func (n name) restore() error {
	info, err := os.Lstat(n.path)
	if err == nil {
		if err = os.Remove(n.path); err != nil && info.IsDir() {
			return nil // something in it is synced, so it is too
		}
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	_, lost := os.Lstat(filepath.Dir(n.path)) // of every second name: its directory is gone
	switch {
	case err != nil || !n.was || lost != nil:
		return err
	case n.mode.Type() == fs.ModeSymlink:
		return os.Symlink(n.target, n.path)
	case n.mode.IsDir():
		return os.Mkdir(n.path, n.mode.Perm())
	}
	return errors.Join(os.WriteFile(n.path, []byte(n.text), n.mode.Perm()),
		os.Chmod(n.path, n.mode.Perm()))
}
