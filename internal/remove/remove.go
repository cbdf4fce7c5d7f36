// Package remove removes directories with their contents. It follows no links and enters no mounts,
// of another file system or bound from the same one (openat2(2), RESOLVE_NO_XDEV).
package remove

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Touch is called before each removal, and done after it. An error prevents the removal.
type Touch func(what string) (done func(), err error)

// Tree removes a name, with all contents, from an open directory. A missing name is no error.
func Tree(dir *os.File, name string, touch Touch) error {
	path := filepath.Join(dir.Name(), name)
	if err := unlink(dir, name, 0, touch); !errors.Is(err, unix.EISDIR) {
		return err
	}
	fd, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_BENEATH |
			unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.EXDEV) {
		return fmt.Errorf("cannot remove %s: something is mounted there; unmount it first", path)
	}
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", path, err)
	}
	sub := os.NewFile(uintptr(fd), path)
	err = Contents(sub, touch)
	sub.Close()
	if err != nil {
		return err
	}
	return unlink(dir, name, unix.AT_REMOVEDIR, touch)
}

// Contents removes all but the given names from an open directory. It continues after errors.
func Contents(dir *os.File, touch Touch, except ...string) error {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", dir.Name(), err)
	}
	var errs []error
	for _, name := range names {
		if !slices.Contains(except, name) {
			errs = append(errs, Tree(dir, name, touch))
		}
	}
	return errors.Join(errs...)
}

func unlink(dir *os.File, name string, flags int, touch Touch) error {
	path := filepath.Join(dir.Name(), name)
	done, err := touch("remove " + path)
	if err == nil {
		defer done()
		err = unix.Unlinkat(int(dir.Fd()), name, flags)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	return nil
}
