package host

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// observeLink observes a symbolic link, and the directory that it leads to, if it does.
func (h *Host) observeLink(path string) (state.Link, error) {
	target, err := os.Readlink(h.path(path))
	if err != nil {
		return state.Link{}, fmt.Errorf("cannot read link %s: %w", path, unwrapPath(err))
	}
	link := state.Link{Path: path, Target: target}
	real, err := h.resolve(path)
	if err != nil {
		return link, nil // it leads nowhere, or to no directory
	}
	dir, err := h.observeDir(h.machinePath(real), real)
	if err != nil {
		return link, err
	}
	link.Dir = &dir
	return link, nil
}

// restoreLinked empties the directory that the owner's link leads to, if it was empty before, and
// gives it back the mode that a program of ours has changed.
func (h *Host) restoreLinked(is, to state.Link, ours state.Dir) error {
	if to.Dir == nil || is.Dir == nil {
		return nil
	}
	if to.Dir.Empty {
		if err := h.empty(to.Path, ours.Mounts, to.Dir.Mounted); err != nil {
			return err
		}
	}
	if is.Dir.Mode != ours.Mode || is.Dir.Mode == to.Dir.Mode {
		return nil
	}
	real, err := h.resolve(to.Path)
	if err != nil {
		return fmt.Errorf("cannot follow %s: %w", to.Path, err)
	}
	return h.setMode(real, *to.Dir)
}

// resolve follows links to a directory and returns where that is for this process. Below a test's
// root, a link is taken as it is on the machine whose root that is.
func (h *Host) resolve(path string) (string, error) {
	root, err := unix.Open(h.path("/"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(root)
	dir, err := unix.Openat2(root, strings.TrimPrefix(path, "/"), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir))
}

// machinePath is the reverse of path.
func (h *Host) machinePath(real string) string {
	root, err := filepath.EvalSymlinks(h.path("/"))
	if err != nil || root == "/" {
		return real
	}
	return "/" + strings.TrimPrefix(strings.TrimPrefix(real, root), "/")
}

// setLink makes a symbolic link, replacing what is there in one step. The owner's link to a
// directory that was ours alone is kept; only what is in the directory goes.
func (h *Host) setLink(c state.Change, to state.Link) error {
	ours, claimed := c.Ours.(state.Dir)
	if is, ok := c.From.(state.Link); ok && c.Undo && claimed && is.Target == to.Target {
		return h.restoreLinked(is, to, ours)
	}
	if err := h.clearDir(c, to.Path); err != nil {
		return err
	}
	temp := h.path(tempName(to.Path))
	err := h.change("link "+to.Path, func() error {
		if err := except(os.Remove(temp), fs.ErrNotExist); err != nil {
			return err
		}
		return os.Symlink(to.Target, temp)
	})
	if err != nil {
		return err
	}
	return h.rename(temp, to.Path)
}
