// Package remove removes directories with their contents. It follows no links and enters no mounts,
// of another file system or bound from the same one (openat2(2), RESOLVE_NO_XDEV). It needs little
// memory, however deep and wide a tree is: a pod can fill a disk with names.
package remove

import (
	"cmp"
	"crypto/rand"
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

// Tree removes a path with all contents. A missing one is no error.
func Tree(path string, touch Touch) error {
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	defer parent.Close()
	return (&remover{touch: touch}).tree(parent, filepath.Base(path))
}

// Contents removes all but the given names from an open directory. It returns the first error.
func Contents(dir *os.File, touch Touch, except ...string) error {
	return (&remover{touch: touch}).contents(dir, except...)
}

type remover struct {
	touch Touch
	open  []*os.File // the outermost one first
	moved bool       // a deep directory was moved to the outermost one, which is read again
}

func (r *remover) tree(dir *os.File, name string) error {
	if err := r.unlink(dir, name, 0); !errors.Is(err, unix.EISDIR) {
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
	err = r.contents(sub)
	sub.Close()
	if err != nil {
		return err
	}
	return r.unlink(dir, name, unix.AT_REMOVEDIR)
}

func (r *remover) contents(dir *os.File, except ...string) (first error) {
	r.open = append(r.open, dir)
	defer func() { r.open = r.open[:len(r.open)-1] }()
	for {
		names, err := dir.Readdirnames(100)
		for _, name := range names {
			if !slices.Contains(except, name) {
				first = cmp.Or(first, r.tree(dir, name))
			}
		}
		if errors.Is(err, io.EOF) {
			if len(r.open) > 1 || !r.moved {
				return first
			}
			r.moved = false
			_, err = dir.Seek(0, io.SeekStart)
		}
		if err != nil {
			return fmt.Errorf("cannot list %s: %w", path(dir, ""), err)
		}
	}
}

func (r *remover) unlink(dir *os.File, name string, flags int) error {
	done, err := r.touch("remove " + name)
	if err == nil {
		defer done()
		err = unix.Unlinkat(int(dir.Fd()), name, flags)
	}
	if len(r.open) > 100 && errors.Is(err, unix.EISDIR) && // too many are open
		unix.Renameat(int(dir.Fd()), name, int(r.open[0].Fd()), rand.Text()) == nil {
		r.moved = true
		return nil
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
