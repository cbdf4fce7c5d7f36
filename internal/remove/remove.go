// Package remove removes directories with their contents. It follows no links and enters no mounts,
// of another file system or bound from the same one (openat2(2), RESOLVE_NO_XDEV). It needs little
// memory, however deep and wide a tree is: a pod can fill a disk with names.
package remove

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Touch is called before each removal, and done after it. An error prevents the removal.
type Touch func(what string) (done func(), err error)

// Tree removes a name, with all contents, from an open directory. A missing name is no error.
func Tree(dir *os.File, name string, touch Touch) error {
	if err := unlink(dir, name, 0, touch); !errors.Is(err, unix.EISDIR) {
		return err
	}
	fd, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_BENEATH |
			unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.EXDEV) {
		err = errors.New("something is mounted there; unmount it first")
	}
	if err != nil {
		return fmt.Errorf("cannot remove %s: %w", path(dir, name), err)
	}
	sub := os.NewFile(uintptr(fd), name)
	err = Contents(sub, touch)
	sub.Close()
	if err != nil {
		return err
	}
	return unlink(dir, name, unix.AT_REMOVEDIR, touch)
}

// Contents removes all but the given names from an open directory. It continues after errors, and
// returns the first.
func Contents(dir *os.File, touch Touch, except ...string) (first error) {
	for {
		names, err := dir.Readdirnames(100)
		for _, name := range names {
			if !slices.Contains(except, name) {
				first = cmp.Or(first, Tree(dir, name, touch))
			}
		}
		if errors.Is(err, io.EOF) {
			return first
		}
		if err != nil {
			return fmt.Errorf("cannot list %s: %w", path(dir, ""), err)
		}
	}
}

func unlink(dir *os.File, name string, flags int, touch Touch) error {
	done, err := touch("remove " + name)
	if err == nil {
		defer done()
		err = unix.Unlinkat(int(dir.Fd()), name, flags)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot remove %s: %w", path(dir, name), err)
	}
	return nil
}

// path returns the path of a name in an open directory, of which only the base name is kept.
func path(dir *os.File, name string) string {
	parent, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd())) // fails if it is too long
	return filepath.Join(cmp.Or(parent, dir.Name()), name)
}
