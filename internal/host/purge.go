package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// MountError is a mount below a directory that is to be removed, at a place where we expect none:
// somebody else made it, and what is behind it may be valuable.
type MountError struct{ Dir, Point, Source string }

func (e *MountError) Error() string {
	const form = "cannot remove %s: %s is mounted at %s; " +
		"if nobody needs it there, `umount %s` and run this again"
	return fmt.Sprintf(form, e.Dir, e.Source, e.Point, e.Point)
}

// purge removes a directory with all that is in it. Mounts at the expected places are unmounted
// first, deepest first; any other mount stops the purge before anything is deleted. Deletion
// follows no link and crosses no mount.
func (h *Host) purge(path string, expected []string) error {
	root := h.path(path)
	if err := h.unmountBelow(path, root, expected, false); err != nil {
		return err
	}
	parent, err := unix.Open(filepath.Dir(root), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", filepath.Dir(path), err)
	}
	defer unix.Close(parent)
	dir, err := openBelow(parent, filepath.Base(root))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", path, err)
	}
	err = h.deleteContents(dir, path)
	unix.Close(dir)
	if err != nil {
		return err
	}
	done, err := h.touch("remove %s", path)
	if err != nil {
		return err
	}
	defer done()
	err = unix.Unlinkat(parent, filepath.Base(root), unix.AT_REMOVEDIR)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	h.changed(filepath.Dir(root))
	return nil
}

// empty removes all that is in a directory but lost+found, by the rules of purge. The path may be
// the owner's link to the directory, and the directory the owner's mount point if mounted says so:
// link and mount remain.
func (h *Host) empty(path string, expected []string, mounted bool) error {
	root, err := h.resolve(path)
	if err != nil {
		return fmt.Errorf("cannot find %s: %w", path, err)
	}
	if err := h.unmountBelow(path, root, expected, mounted); err != nil {
		return err
	}
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	dir, err := unix.Open(root, flags, 0)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", path, err)
	}
	defer unix.Close(dir)
	return h.deleteContents(dir, path, lostAndFound)
}

// unmountBelow unmounts what is mounted at the expected places below root, the place of path for
// this process. Root itself may be a mount point if mounted says so, and is left.
func (h *Host) unmountBelow(path, root string, expected []string, mounted bool) error {
	list, err := mounts()
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	found := under(list, root)
	if mounted {
		found = slices.DeleteFunc(found, func(m mount) bool { return m.Point == root })
	}
	for _, m := range found {
		if !expectedAt(m.Point, root, expected) {
			return &MountError{Dir: path, Point: m.Point, Source: m.Source}
		}
	}
	for _, m := range found {
		if err := h.unmount(m); err != nil {
			return err
		}
	}
	return nil
}

// expectedAt reports whether a mount point is at one of the places below root.
func expectedAt(point, root string, expected []string) bool {
	for _, place := range expected {
		if within(point, filepath.Join(root, place)) {
			return true
		}
	}
	return false
}

// unmount takes a mount away; one that is busy is detached and goes when its last user does.
func (h *Host) unmount(m mount) error {
	done, err := h.touch("unmount %s", m.Point)
	if err != nil {
		return err
	}
	defer done()
	err = unix.Unmount(m.Point, unmountFlags(m))
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(m.Point, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot unmount %s: %w", m.Point, err)
	}
	return nil
}

// unmountFlags returns the flags of umount2(2). A remote file system is only detached: the kernel
// would ask a server that does not answer until it does.
func unmountFlags(m mount) int {
	if m.remote() {
		return unix.UMOUNT_NOFOLLOW | unix.MNT_DETACH
	}
	return unix.UMOUNT_NOFOLLOW
}

// openBelow opens a directory in another one; the kernel refuses links and mounts (openat2(2)).
func openBelow(dir int, name string) (int, error) {
	return unix.Openat2(dir, name, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_BENEATH |
			unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// deleteContents removes all that is in an open directory, except the given names. It goes on after
// an error.
func (h *Host) deleteContents(dir int, path string, except ...string) error {
	names, err := list(dir)
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", path, err)
	}
	var errs []error
	for _, name := range names {
		if slices.Contains(except, name) {
			continue
		}
		errs = append(errs, h.delete(dir, name, filepath.Join(path, name)))
	}
	return errors.Join(errs...)
}

func (h *Host) delete(dir int, name, path string) error {
	done, err := h.touch("remove %s", path)
	if err != nil {
		return err
	}
	defer done()
	err = unix.Unlinkat(dir, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	sub, err := openBelow(dir, name)
	if errors.Is(err, unix.EXDEV) {
		return fmt.Errorf("cannot remove %s: something is mounted there", path)
	}
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", path, err)
	}
	err = h.deleteContents(sub, path)
	unix.Close(sub)
	if err != nil {
		return err
	}
	done, err = h.touch("remove directory %s", path)
	if err != nil {
		return err
	}
	defer done()
	if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err != nil {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	return nil
}

// list returns the names in an open directory.
func list(dir int) ([]string, error) {
	fd, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
