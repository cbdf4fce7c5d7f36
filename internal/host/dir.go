package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// lostAndFound is the directory that mkfs puts into a new file system; a directory with nothing
// else is empty.
const lostAndFound = "lost+found"

// observeDir observes the directory at real, a path of this process.
func (h *Host) observeDir(path, real string) (state.Dir, error) {
	info, err := os.Lstat(real)
	if err != nil {
		return state.Dir{}, fmt.Errorf("cannot observe %s: %w", path, unwrapPath(err))
	}
	d := state.Dir{Path: path, Mode: permissions(info)}
	d.UID, d.GID = h.owner(info)
	if d.Empty, err = isEmpty(real); err != nil {
		return d, fmt.Errorf("cannot list %s: %w", path, unwrapPath(err))
	}
	if d.Mounted, err = isMountPoint(real); err != nil {
		return d, fmt.Errorf("cannot tell whether %s is a mount point: %w", path, err)
	}
	return d, nil
}

func isEmpty(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	names, err := f.Readdirnames(2)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == lostAndFound })
	return err == nil && len(names) == 0, err
}

// isMountPoint asks the kernel: a bind mount has the same device as its surroundings (statx(2)).
func isMountPoint(path string) (bool, error) {
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if err := unix.Statx(unix.AT_FDCWD, path, flags, unix.STATX_TYPE, &st); err != nil {
		return false, err
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// setDir makes a directory, or restores the mode, owner and emptiness that one had. A mount point
// and the owner's link to a directory are used as they are.
func (h *Host) setDir(c state.Change, to state.Dir) error {
	from, exists := c.From.(state.Dir)
	if link, ok := c.From.(state.Link); ok && link.Dir != nil && !c.Undo {
		return nil
	}
	ours, ok := c.Ours.(state.Dir)
	claimed := c.Undo && exists && ok && ours.Purge
	if claimed {
		if err := h.restoreContents(from, to, ours); err != nil {
			return err
		}
	}
	ownersMode := from.Mounted && !(claimed && state.Equal(from, ours))
	if exists && (ownersMode || !claimed && state.Equal(from, to)) {
		return nil
	}
	if !exists {
		if err := h.makeDir(c.From, to.Path); err != nil {
			return err
		}
	}
	return h.setMode(h.path(to.Path), to)
}

// setMode gives the directory at real, a path of this process, the mode and owner of to.
func (h *Host) setMode(real string, to state.Dir) error {
	return h.change("set mode and owner of "+to.Path, func() error {
		defer h.changed(filepath.Dir(real))
		if err := h.chown(real, to.UID, to.GID); err != nil {
			return err
		}
		return os.Chmod(real, to.Mode)
	})
}

// restoreContents empties a claimed directory that was empty before, unless a mount covers it now.
func (h *Host) restoreContents(from, to, ours state.Dir) error {
	if from.Mounted && !to.Mounted {
		return h.unmountBelow(to.Path, h.path(to.Path), nil, false)
	}
	if !to.Empty {
		return nil
	}
	return h.empty(to.Path, ours.Mounts, to.Mounted)
}

func (h *Host) makeDir(from state.Resource, path string) error {
	switch from.(type) {
	case state.File, state.Link:
		if err := h.remove(path, 0); err != nil {
			return err
		}
	}
	return h.change("make directory "+path, func() error {
		return except(os.Mkdir(h.path(path), 0o700), fs.ErrExist)
	})
}

// clearDir removes a directory that is in the way of a file or link: one that was ours alone with
// its contents, any other only when it is empty.
func (h *Host) clearDir(c state.Change, path string) error {
	if _, ok := c.From.(state.Dir); !ok {
		return nil
	}
	if ours, ok := c.Ours.(state.Dir); ok && ours.Purge {
		return h.purge(path, ours.Mounts)
	}
	if err := h.remove(path, unix.AT_REMOVEDIR); err != nil {
		return fmt.Errorf("%w; it is a directory where a file must be: move it away", err)
	}
	return nil
}
