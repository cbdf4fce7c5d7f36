package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

func (h *Host) observePath(path string) (state.Resource, error) {
	info, err := os.Lstat(h.path(path))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return state.Absent{Path: path}, nil
	case err != nil:
		return nil, fmt.Errorf("cannot observe %s: %w", path, err)
	}
	switch info.Mode().Type() {
	case 0:
		f := state.File{Path: path, Mode: info.Mode().Perm()}
		f.UID, f.GID = h.owner(info)
		f.SHA256, err = h.digest(path)
		return f, err
	case fs.ModeDir:
		return h.observeDir(path, h.path(path))
	case fs.ModeSymlink:
		return h.observeLink(path)
	}
	const form = "cannot use %s: it is a %s, not a file or directory; move it away"
	return nil, fmt.Errorf(form, path, info.Mode().Type())
}

// owner returns the owner of a file; below a test's root its user stands for root.
func (h *Host) owner(info fs.FileInfo) (uid, gid int) {
	st := info.Sys().(*syscall.Stat_t)
	uid, gid = int(st.Uid), int(st.Gid)
	if h.Root != "" && uid == os.Geteuid() && gid == os.Getegid() {
		return 0, 0
	}
	return uid, gid
}

func (h *Host) remove(path string, flags int) error {
	return h.change("remove "+path, func() error {
		defer h.changed(h.path(filepath.Dir(path)))
		return except(unix.Unlinkat(unix.AT_FDCWD, h.path(path), flags), unix.ENOENT)
	})
}

func (h *Host) rename(temp, path string) error {
	return h.change("put "+path+" in place", func() error {
		defer h.changed(h.path(filepath.Dir(path)))
		return os.Rename(temp, h.path(path))
	})
}

func (h *Host) chown(path string, uid, gid int) error {
	if h.Root != "" && uid == 0 && gid == 0 {
		return nil
	}
	return os.Lchown(path, uid, gid)
}

// tempName returns the only name of an unfinished file or link at path.
func tempName(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".aks-flex-node~")
}

// Sweep removes leftovers of a killed run: unfinished files and links beside things, and secrets.
func (h *Host) Sweep(keys []state.Key) error {
	errs := []error{h.clearSecrets()}
	for _, key := range keys {
		name, ok := strings.CutPrefix(string(key), "path:")
		if !ok {
			continue
		}
		temp := tempName(name)
		if _, err := os.Lstat(h.path(temp)); err == nil {
			errs = append(errs, h.remove(temp, 0))
		}
	}
	return errors.Join(errs...)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := except(d.Sync(), unix.EINVAL); err != nil {
		return fmt.Errorf("cannot sync %s: %w", path, unwrapPath(err))
	}
	return nil
}

// unwrapPath drops the repeated part of an os error, and adds advice where we have some.
func unwrapPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		err = e.Err
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w; free some space", err)
	}
	return err
}

// setAbsent removes a path. A directory goes with its contents only if those are ours; one that
// holds files of others stays, without an error.
func (h *Host) setAbsent(c state.Change, to state.Absent) error {
	if _, isDir := c.From.(state.Dir); !isDir {
		return h.remove(to.Path, 0)
	}
	if ours, ok := c.Ours.(state.Dir); ok && ours.Purge {
		return h.purge(to.Path, ours.Mounts)
	}
	err := h.remove(to.Path, unix.AT_REMOVEDIR)
	if err != nil && except(err, unix.ENOTEMPTY, unix.EEXIST, unix.EBUSY) == nil {
		h.Log.Debug("directory left: other programs use it", "path", to.Path)
		return nil
	}
	return err
}

// observeLink observes a symbolic link, and the directory that it leads to, if any.
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
	link.Dir = &dir
	return link, err
}

// restoreLinked empties the directory that the owner's link leads to, if it was empty before, and
// restores the mode that a program of ours has changed.
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

// resolve follows links to a directory and returns its path for this process. Below a test's root,
// links resolve as on the machine whose root that is.
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

func (h *Host) machinePath(real string) string {
	root, err := filepath.EvalSymlinks(h.path("/"))
	if err != nil || root == "/" {
		return real
	}
	return "/" + strings.TrimPrefix(strings.TrimPrefix(real, root), "/")
}

// setLink creates a symbolic link and replaces an existing path in one step. The owner's link to a
// directory that was ours alone is kept; only the contents of the directory go.
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
		return errors.Join(except(os.Remove(temp), fs.ErrNotExist), os.Symlink(to.Target, temp))
	})
	if err != nil {
		return err
	}
	return h.rename(temp, to.Path)
}

// lostAndFound is part of a new file system (mkfs); a directory with nothing else is empty.
const lostAndFound = "lost+found"

// observeDir observes the directory at real, its path for this process.
func (h *Host) observeDir(path, real string) (state.Dir, error) {
	info, err := os.Lstat(real)
	if err != nil {
		return state.Dir{}, fmt.Errorf("cannot observe %s: %w", path, unwrapPath(err))
	}
	const permissions = fs.ModePerm | fs.ModeSticky | fs.ModeSetgid | fs.ModeSetuid
	d := state.Dir{Path: path, Mode: info.Mode() & permissions}
	d.UID, d.GID = h.owner(info)
	if d.Empty, err = isEmpty(real); err != nil {
		return d, fmt.Errorf("cannot list %s: %w", path, unwrapPath(err))
	}
	if d.Mounted, err = isMountPoint(real); err != nil {
		return d, fmt.Errorf("cannot check whether %s is a mount point: %w", path, err)
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
	err = except(err, io.EOF)
	names = slices.DeleteFunc(names, func(name string) bool { return name == lostAndFound })
	return err == nil && len(names) == 0, err
}

// isMountPoint asks the kernel: a bind mount has the same device as its surroundings (statx(2)).
func isMountPoint(path string) (bool, error) {
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	err := unix.Statx(unix.AT_FDCWD, path, flags, unix.STATX_TYPE, &st)
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, err
}

// setDir creates a directory, or restores its old mode, owner and emptiness. A mount point and the
// owner's link to a directory are used as they are.
func (h *Host) setDir(c state.Change, to state.Dir) error {
	from, exists := c.From.(state.Dir)
	if link, ok := c.From.(state.Link); ok && link.Dir != nil && !c.Undo {
		return nil
	}
	ours, ok := c.Ours.(state.Dir)
	claimed := c.Undo && exists && ok && ours.Purge
	var err error
	switch {
	case claimed && from.Mounted && !to.Mounted: // others have mounted something here: an error
		err = h.unmountBelow(to.Path, h.path(to.Path), nil, false)
	case claimed && to.Empty:
		err = h.empty(to.Path, ours.Mounts, to.Mounted)
	}
	if err != nil {
		return err
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

// setMode sets the mode and owner of the directory at real, its path for this process.
func (h *Host) setMode(real string, to state.Dir) error {
	return h.change("set mode and owner of "+to.Path, func() error {
		defer h.changed(filepath.Dir(real))
		if err := h.chown(real, to.UID, to.GID); err != nil {
			return err
		}
		return os.Chmod(real, to.Mode)
	})
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

// clearDir removes a directory at the path of a file or link: one that was ours alone with its
// contents, any other only if it is empty.
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
