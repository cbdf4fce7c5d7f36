package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
		return nil, fmt.Errorf("cannot look at %s: %w", path, err)
	}
	uid, gid := h.owner(info)
	switch info.Mode().Type() {
	case 0:
		digest, err := h.digest(path)
		return state.File{Path: path, Mode: info.Mode().Perm(), UID: uid, GID: gid, SHA256: digest}, err
	case fs.ModeDir:
		empty, err := isEmpty(h.path(path))
		return state.Dir{Path: path, Mode: permissions(info), UID: uid, GID: gid, Empty: empty}, err
	case fs.ModeSymlink:
		target, err := os.Readlink(h.path(path))
		return state.Link{Path: path, Target: target}, err
	default:
		return nil, fmt.Errorf("cannot use %s: it is a %s, not a file or directory; move it away", path, info.Mode().Type())
	}
}

// permissions are the mode bits that chmod sets.
func permissions(info fs.FileInfo) fs.FileMode {
	return info.Mode() & (fs.ModePerm | fs.ModeSticky | fs.ModeSetgid | fs.ModeSetuid)
}

// owner is who owns a file. Below a test's root, whoever runs the test stands for root.
func (h *Host) owner(info fs.FileInfo) (uid, gid int) {
	st := info.Sys().(*syscall.Stat_t)
	uid, gid = int(st.Uid), int(st.Gid)
	if h.Root != "" && uid == os.Geteuid() && gid == os.Getegid() {
		return 0, 0
	}
	return uid, gid
}

func (h *Host) digest(path string) (string, error) {
	f, err := os.Open(h.path(path))
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", path, err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("cannot read %s: %w", path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func isEmpty(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// setAbsent removes what is at a path. A directory goes with its contents only if those are ours; one in which others have
// put something stays, without complaint.
func (h *Host) setAbsent(c state.Change, to state.Absent) error {
	dir, isDir := c.From.(state.Dir)
	if !isDir {
		return h.remove(to.Path, 0)
	}
	if ours, ok := c.Ours.(state.Dir); ok && ours.Purge {
		return h.purge(to.Path, ours.Mounts, false)
	}
	err := h.remove(dir.Path, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY) {
		h.Log.Debug("directory left: others use it", "path", dir.Path)
		return nil
	}
	return err
}

func (h *Host) remove(path string, flags int) error {
	if err := h.touch("remove %s", path); err != nil {
		return err
	}
	if err := unix.Unlinkat(unix.AT_FDCWD, h.path(path), flags); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	h.changed(h.path(filepath.Dir(path)))
	return nil
}

// setDir makes a directory, or gives one back the mode, owner and emptiness that it had.
func (h *Host) setDir(c state.Change, to state.Dir) error {
	if ours, ok := c.Ours.(state.Dir); c.Undo && ok && ours.Purge && to.Empty {
		if err := h.purge(to.Path, ours.Mounts, true); err != nil {
			return err
		}
	}
	if err := h.displace(c.From, to.Path); err != nil {
		return err
	}
	if _, exists := c.From.(state.Dir); !exists {
		if err := h.touch("make directory %s", to.Path); err != nil {
			return err
		}
		if err := os.Mkdir(h.path(to.Path), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("cannot make directory %s: %w", to.Path, unwrapPath(err))
		}
	} else if state.Equal(c.From, to) {
		return nil
	}
	if err := h.touch("set mode of %s", to.Path); err != nil {
		return err
	}
	if err := h.chown(h.path(to.Path), to.UID, to.GID); err != nil {
		return fmt.Errorf("cannot set the owner of %s: %w", to.Path, unwrapPath(err))
	}
	if err := os.Chmod(h.path(to.Path), to.Mode); err != nil {
		return fmt.Errorf("cannot set the mode of %s: %w", to.Path, unwrapPath(err))
	}
	h.changed(h.path(filepath.Dir(to.Path)))
	return nil
}

// displace makes room for a thing of another kind: a file or link in the way of a directory, or an empty directory in the way of a
// file. What is in the way is in the ledger by now.
func (h *Host) displace(from state.Resource, path string) error {
	switch from.(type) {
	case state.File, state.Link:
		return h.remove(path, 0)
	}
	return nil
}

// setLink makes a symbolic link, replacing what is there in one step.
func (h *Host) setLink(c state.Change, to state.Link) error {
	if err := h.clearDir(c.From, to.Path); err != nil {
		return err
	}
	temp := h.path(tempName(to.Path))
	if err := h.touch("link %s", to.Path); err != nil {
		return err
	}
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot link %s: %w", to.Path, unwrapPath(err))
	}
	if err := os.Symlink(to.Target, temp); err != nil {
		return fmt.Errorf("cannot link %s: %w", to.Path, unwrapPath(err))
	}
	return h.rename(temp, to.Path)
}

// clearDir removes an empty directory that is in the way of a file or link.
func (h *Host) clearDir(from state.Resource, path string) error {
	if _, ok := from.(state.Dir); !ok {
		return nil
	}
	if err := h.remove(path, unix.AT_REMOVEDIR); err != nil {
		return fmt.Errorf("%w; it is a directory, and a file must be there: move it away", err)
	}
	return nil
}

func (h *Host) rename(temp, path string) error {
	if err := h.touch("rename to %s", path); err != nil {
		return err
	}
	if err := os.Rename(temp, h.path(path)); err != nil {
		return fmt.Errorf("cannot put %s in place: %w", path, unwrapPath(err))
	}
	h.changed(h.path(filepath.Dir(path)))
	return nil
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

// Sweep removes unfinished files and links that a killed run has left beside the given things, and secrets that it was handing over.
func (h *Host) Sweep(keys []state.Key) error {
	errs := []error{h.clearSecrets()}
	for _, key := range keys {
		name, ok := cutPath(key)
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
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("cannot sync %s: %w", path, unwrapPath(err))
	}
	return nil
}

// unwrapPath drops the operation and path that an os error repeats.
func unwrapPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}
