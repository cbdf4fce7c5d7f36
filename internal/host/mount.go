package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/remove"
)

// purge removes a directory with all that is in it. Mounts at the expected places are unmounted
// first, deepest first; any other mount stops the purge before anything is deleted. Deletion
// follows no link and crosses no mount.
func (h *Host) purge(path string, expected []string) error {
	root := h.path(path)
	if err := h.unmountBelow(path, root, expected, false); err != nil {
		return err
	}
	defer h.changed(filepath.Dir(root))
	return remove.Tree(root, h.Touched)
}

// empty removes everything but lost+found from a directory, by the rules of purge. The path may be
// the owner's link to the directory and, if mounted is set, a mount point: both remain.
func (h *Host) empty(path string, expected []string, mounted bool) error {
	root, err := h.resolve(path)
	if err != nil {
		return fmt.Errorf("cannot find %s: %w", path, err)
	}
	if err := h.unmountBelow(path, root, expected, mounted); err != nil {
		return err
	}
	dir, err := os.OpenFile(root, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", path, unwrapPath(err))
	}
	defer dir.Close()
	return remove.Contents(dir, h.Touched, lostAndFound)
}

// unmountBelow unmounts the mounts at the expected places below root, the path as this process sees
// it. Any other mount is an error. If mounted is set, root may be a mount point and stays one.
func (h *Host) unmountBelow(path, root string, expected []string, mounted bool) error {
	list, err := mountinfo.GetMounts(nil)
	if err != nil {
		return fmt.Errorf("cannot read the mounts: %w", err)
	}
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	found := under(list, root)
	if mounted {
		found = slices.DeleteFunc(found, func(m *mountinfo.Info) bool { return m.Mountpoint == root })
	}
	for _, m := range found {
		at := func(place string) bool { return within(m.Mountpoint, filepath.Join(root, place)) }
		if !slices.ContainsFunc(expected, at) {
			return fmt.Errorf("cannot remove %s: %s is mounted at %s; if it is not needed there, "+
				"`umount %[3]s` and run this again", path, m.Source, m.Mountpoint)
		}
	}
	for _, m := range found {
		if err := h.unmount(m); err != nil {
			return err
		}
	}
	return nil
}

// unmount removes a mount; a busy one is detached and ends with its last user.
func (h *Host) unmount(m *mountinfo.Info) error {
	return h.change("unmount "+m.Mountpoint, func() error {
		err := unix.Unmount(m.Mountpoint, unmountFlags(m.FSType))
		if errors.Is(err, unix.EBUSY) {
			err = detach(m.Mountpoint)
		}
		return except(err, unix.EINVAL, unix.ENOENT)
	})
}

// unmountFlags returns the flags of umount2(2) for a type of file system. One that a server or
// process serves is only detached: the kernel would wait for a server that does not answer.
func unmountFlags(filesystem string) int {
	served := []string{"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "afs", "9p", "fuse"}
	if strings.HasPrefix(filesystem, "fuse.") || slices.Contains(served, filesystem) {
		return unix.UMOUNT_NOFOLLOW | unix.MNT_DETACH
	}
	return unix.UMOUNT_NOFOLLOW
}

func detach(point string) error {
	return except(unix.Unmount(point, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH), unix.EINVAL, unix.ENOENT)
}

func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, path.Clean(dir)+"/") || dir == "/"
}

// under returns the mounts at or below dir in the order of unmounting: latest and deepest first.
func under(list []*mountinfo.Info, dir string) []*mountinfo.Info {
	found := slices.DeleteFunc(slices.Clone(list), func(m *mountinfo.Info) bool {
		return !within(m.Mountpoint, dir)
	})
	slices.Reverse(found)
	slices.SortStableFunc(found, func(a, b *mountinfo.Info) int {
		return strings.Count(b.Mountpoint, "/") - strings.Count(a.Mountpoint, "/")
	})
	return found
}

func (linux) findMounts(_ context.Context, prefix string) ([]string, error) {
	var found []string
	_, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		if strings.HasPrefix(m.Mountpoint, prefix) {
			found = append(found, m.Mountpoint)
		}
		return true, false
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the mounts: %w", err)
	}
	matches, err := filepath.Glob(prefix + "*")
	return append(found, matches...), err
}

// clearMounts unmounts the given mount points and removes the empty files at them. A network
// namespace that has a process is not ours and stays.
func (linux) clearMounts(_ context.Context, _ string, points []string) error {
	var errs []error
	lived, err := inhabited()
	if err != nil {
		return err
	}
	for _, point := range slices.Backward(slices.Sorted(slices.Values(points))) {
		var st unix.Stat_t
		if unix.Lstat(point, &st) == nil && lived[st.Ino] {
			continue
		}
		if err := detach(point); err != nil {
			errs = append(errs, fmt.Errorf("cannot unmount %s: %w", point, err))
			continue
		}
		if info, err := os.Lstat(point); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
			errs = append(errs, os.Remove(point))
		}
	}
	return errors.Join(errs...)
}

// inhabited returns the network namespaces that processes live in, by inode. Those of our pods have
// no process left when their mounts are removed.
func inhabited() (map[uint64]bool, error) {
	paths, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/ns/net") // the pattern is valid
	inodes := map[uint64]bool{}
	for _, path := range paths {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err == nil {
			inodes[st.Ino] = true
		} else if except(err, unix.ENOENT, unix.ESRCH, unix.EACCES) != nil {
			return nil, &os.PathError{Op: "stat", Path: path, Err: err}
		}
	}
	return inodes, nil
}
