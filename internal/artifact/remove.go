package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// removeTree removes store/name and everything below it. Every step is relative to an open
// directory, so no link is followed, and openat2(2) with RESOLVE_NO_XDEV refuses to enter a mount,
// be it of another file system or bound from this one.
func removeTree(store, name string, touch Touch) error {
	dir, err := os.Open(store)
	if err != nil {
		return fmt.Errorf("cannot open the artifact store: %w", err)
	}
	defer dir.Close()
	if _, err := os.Lstat(filepath.Join(store, name)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return removeAt(dir, name, touch)
}

func removeAt(dir *os.File, name string, touch Touch) error {
	path := filepath.Join(dir.Name(), name)
	done, err := touch.before("remove %s", path)
	if err != nil {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	defer done()
	err = unix.Unlinkat(int(dir.Fd()), name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	if err := removeContent(dir, name, touch); err != nil {
		return err
	}
	done, err = touch.before("remove directory %s", path)
	if err != nil {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	defer done()
	if err := unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR); err != nil &&
		!errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	return nil
}

func removeContent(dir *os.File, name string, touch Touch) error {
	path := filepath.Join(dir.Name(), name)
	fd, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if errors.Is(err, unix.EXDEV) {
		return fmt.Errorf("cannot remove %s: something is mounted there; unmount it first", path)
	}
	if err != nil {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	sub := os.NewFile(uintptr(fd), path)
	defer sub.Close()
	names, err := sub.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	var errs []error
	for _, n := range names {
		errs = append(errs, removeAt(sub, n, touch))
	}
	return errors.Join(errs...)
}
