package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// observePath observes whatever is at a path.
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
		return h.observeFile(path, info)
	case fs.ModeDir:
		return h.observeDir(path, h.path(path))
	case fs.ModeSymlink:
		return h.observeLink(path)
	default:
		const form = "cannot use %s: it is a %s, not a file or directory; move it away"
		return nil, fmt.Errorf(form, path, info.Mode().Type())
	}
}

// permissions are the mode bits that chmod sets.
func permissions(info fs.FileInfo) fs.FileMode {
	return info.Mode() & (fs.ModePerm | fs.ModeSticky | fs.ModeSetgid | fs.ModeSetuid)
}

// owner returns the owner of a file. Below a test's root, the user who runs the test stands for
// root.
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
		err := unix.Unlinkat(unix.AT_FDCWD, h.path(path), flags)
		h.changed(h.path(filepath.Dir(path)))
		return except(err, unix.ENOENT)
	})
}

func (h *Host) rename(temp, path string) error {
	return h.change("put "+path+" in place", func() error {
		err := os.Rename(temp, h.path(path))
		h.changed(h.path(filepath.Dir(path)))
		return err
	})
}

func (h *Host) chown(path string, uid, gid int) error {
	if h.Root != "" && uid == 0 && gid == 0 {
		return nil
	}
	return os.Lchown(path, uid, gid)
}

// tempName is the one name that an unfinished file or link at path has.
func tempName(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".aks-flex-node~")
}

// Sweep removes what a killed run has left: unfinished files and links beside things, and secrets.
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

// unwrapPath drops what an os error repeats, and says what to do where we know.
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
