package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MountError is a mount below a directory that is to be removed, at a place where we expect none: somebody else made it, and
// what is behind it may be theirs.
type MountError struct{ Dir, Point, Source string }

func (e *MountError) Error() string {
	return fmt.Sprintf("cannot remove %s: %s is mounted at %s; if nobody needs it there, `umount %s` and run this again", e.Dir, e.Source, e.Point, e.Point)
}

// purge removes a directory with all that is in it, or only empties it. Mounts at the expected places are unmounted first, deepest
// first; any other mount stops the purge before anything is deleted. Deletion follows no link and crosses no mount.
func (h *Host) purge(path string, expected []string, keep bool) error {
	root := h.path(path)
	if err := h.unmountBelow(path, expected); err != nil {
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
	if err != nil || keep {
		return err
	}
	if err := h.touch("remove %s", path); err != nil {
		return err
	}
	if err := unix.Unlinkat(parent, filepath.Base(root), unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	h.changed(filepath.Dir(root))
	return nil
}

func (h *Host) unmountBelow(path string, expected []string) error {
	list, err := mounts()
	if err != nil {
		return err
	}
	root, err := filepath.EvalSymlinks(h.path(path))
	if err != nil {
		root = h.path(path)
	}
	found := under(list, root)
	for _, m := range found {
		if !expectedAt(m.Point, root, expected) {
			return &MountError{Dir: path, Point: m.Point, Source: m.Source}
		}
	}
	for _, m := range found {
		if err := h.unmount(m.Point); err != nil {
			return err
		}
	}
	return nil
}

func expectedAt(point, root string, expected []string) bool {
	for _, place := range expected {
		if place == "." && point == root || place != "." && within(point, filepath.Join(root, place)) {
			return true
		}
	}
	return false
}

// unmount takes a mount away; one that is busy is detached and goes when its last user does.
func (h *Host) unmount(point string) error {
	if err := h.touch("unmount %s", point); err != nil {
		return err
	}
	err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(point, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot unmount %s: %w", point, err)
	}
	return nil
}

// openBelow opens a directory in another one; the kernel refuses links and mounts (openat2(2)).
func openBelow(dir int, name string) (int, error) {
	return unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// deleteContents removes all that is in an open directory. It goes on after an error.
func (h *Host) deleteContents(dir int, path string) error {
	names, err := list(dir)
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", path, err)
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, h.delete(dir, name, filepath.Join(path, name)))
	}
	return errors.Join(errs...)
}

func (h *Host) delete(dir int, name, path string) error {
	if err := h.touch("remove %s", path); err != nil {
		return err
	}
	err := unix.Unlinkat(dir, name, 0)
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
