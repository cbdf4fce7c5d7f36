package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// within reports whether a path is dir or below it.
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

// clearMounts unmounts what is mounted at the given places and removes the empty files that they
// were mounted on. A network namespace with a process in it is not ours.
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

// inhabited are the network namespaces that processes live in, by inode. Those of our pods are
// empty when their mounts are removed: their processes have ended before.
func inhabited() (map[uint64]bool, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	inodes := map[uint64]bool{}
	for _, path := range paths {
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		if err == nil {
			inodes[st.Ino] = true
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) &&
			!errors.Is(err, unix.EACCES) {
			return nil, &os.PathError{Op: "stat", Path: path, Err: err}
		}
	}
	return inodes, nil
}
