package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The store is a directory of entries <digest>/, each complete and verified from the moment it
// exists. Beside them are, while or after a download: .partial-<digest>-*, a directory being
// filled, and .download-<digest>[.zst], the bytes of a file that has not arrived whole.
const (
	partialPrefix = ".partial-"
	keptPrefix    = ".download-"
)

// Missing gives the artifacts that are not in the store.
func Missing(store string, arts []Artifact) []Artifact {
	return slices.DeleteFunc(slices.Clone(arts),
		func(a Artifact) bool { return present(store, a.ID) })
}

func present(store, id string) bool {
	info, err := os.Lstat(filepath.Join(store, id))
	return err == nil && info.IsDir()
}

// stage makes the directory in which an entry is built.
func (f *Fetcher) stage(a Artifact) (string, error) {
	done, err := f.Touch.before("make a directory for %s", a)
	if err != nil {
		return "", err
	}
	defer done()
	dir, err := os.MkdirTemp(f.Store, partialPrefix+a.ID+"-")
	if err != nil {
		return "", diskError(err)
	}
	return dir, nil
}

// unstage removes what has not become an entry. What it must leave is Collect's to remove.
func (f *Fetcher) unstage(dir string) {
	_ = removeTree(f.Store, filepath.Base(dir), f.Touch)
}

// adopt makes an entry of a kept file that has been verified.
func (f *Fetcher) adopt(a Artifact, kept *os.File) error {
	dir, err := f.stage(a)
	if err != nil {
		return err
	}
	defer f.unstage(dir)
	if err := kept.Chmod(0o755); err != nil {
		return diskError(err)
	}
	if err := f.rename(kept.Name(), filepath.Join(dir, string(a.Name))); err != nil {
		return diskError(err)
	}
	return f.commit(dir, a.ID)
}

func (f *Fetcher) rename(from, to string) error {
	done, err := f.Touch.before("rename %s to %s", from, to)
	if err != nil {
		return err
	}
	defer done()
	return os.Rename(from, to)
}

// commit makes a filled and verified directory the entry id, durably: everything in it reaches the
// disk before its name.
func (f *Fetcher) commit(dir, id string) error {
	if err := f.finish(dir); err != nil {
		return err
	}
	err := f.place(dir, id)
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
		return nil
	}
	if err == nil {
		err = syncPath(f.Store)
	}
	if err != nil {
		return diskError(err)
	}
	return nil
}

// finish writes the manifest and brings all of a directory to the disk.
func (f *Fetcher) finish(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return diskError(err)
	}
	defer root.Close()
	if err := writeManifest(tree{root, f.Touch}); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return diskError(err)
	}
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncPath(path)
	})
	if err != nil {
		return diskError(err)
	}
	return nil
}

// place gives a directory the name of the entry. An entry that is there is kept, unless it is to be
// healed: then both change places, so that there is never none, and the old one goes the way of
// what has not become an entry. Where a file system cannot do that, the old one is removed first.
func (f *Fetcher) place(dir, id string) error {
	entry := filepath.Join(f.Store, id)
	if !f.heals(id) || !present(f.Store, id) {
		return f.rename(dir, entry)
	}
	done, err := f.Touch.before("exchange %s and %s", dir, entry)
	if err != nil {
		return err
	}
	defer done()
	err = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, entry, unix.RENAME_EXCHANGE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EXDEV) {
		return err
	}
	if err := removeTree(f.Store, id, f.Touch); err != nil {
		return err
	}
	return f.rename(dir, entry)
}

func (f *Fetcher) heals(id string) bool { return slices.Contains(f.Heal, id) }

// Collect removes from the store every entry whose digest is not in keep, and what downloads have
// left over: unfinished directories, and kept bytes that no digest in keep still needs. Names that
// are not the store's own remain. It follows no link and enters no mount; what it cannot remove is
// in the error, and the rest is removed nonetheless. touch, which may be nil, is told before each
// removal. No Fetcher may run meanwhile.
func Collect(store string, keep []string, touch Touch) (removed []string, err error) {
	entries, err := os.ReadDir(store)
	if err != nil {
		return nil, fmt.Errorf("cannot read the artifact store: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !garbage(store, e.Name(), keep) {
			continue
		}
		if err := discard(store, e.Name(), touch); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, e.Name())
	}
	return removed, errors.Join(errs...)
}

// discard removes a name from the store. An entry first gets the name of one that is unfinished: a
// process that is killed in between leaves no half of one.
func discard(store, name string, touch Touch) error {
	if !isDigest(name) {
		return removeTree(store, name, touch)
	}
	doomed := partialPrefix + name + "-discarded"
	if err := removeTree(store, doomed, touch); err != nil {
		return err
	}
	done, err := touch.before("discard %s", name)
	if err != nil {
		return err
	}
	defer done()
	err = os.Rename(filepath.Join(store, name), filepath.Join(store, doomed))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return diskError(err)
	}
	return removeTree(store, doomed, touch)
}

func garbage(store, name string, keep []string) bool {
	if isDigest(name) {
		return !slices.Contains(keep, name)
	}
	if kept, ok := strings.CutPrefix(name, keptPrefix); ok {
		id := strings.TrimSuffix(kept, ".zst")
		return isDigest(id) && (!slices.Contains(keep, id) || present(store, id))
	}
	rest, ok := strings.CutPrefix(name, partialPrefix)
	id, _, _ := strings.Cut(rest, "-")
	return ok && isDigest(id)
}
