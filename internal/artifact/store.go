package artifact

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/remove"
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

// build makes the entry of an artifact: fill puts verified files into a new directory.
func (f *Fetcher) build(a Artifact, fill func(tree) error) error {
	var dir string
	err := f.Touch.do(func() (err error) {
		dir, err = os.MkdirTemp(f.Store, partialPrefix+a.ID+"-")
		return err
	}, "make a directory for %s", a)
	if err != nil {
		return err
	}
	// Removes what has not become an entry. What it must leave is Collect's to remove.
	defer func() { _ = removeTree(f.Store, filepath.Base(dir), f.Touch) }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return diskError(err)
	}
	defer root.Close()
	t := tree{root, f.Touch}
	if err := fill(t); err != nil {
		return err
	}
	if err := t.finish(); err != nil {
		return err
	}
	err = f.place(dir, a.ID)
	if errors.Is(err, fs.ErrExist) { // or not empty
		return nil
	}
	if err == nil {
		err = syncPath(f.Store)
	}
	return diskError(err)
}

func (f *Fetcher) rename(from, to string) error {
	return f.Touch.do(func() error { return os.Rename(from, to) }, "rename %s to %s", from, to)
}

// finish writes the manifest and brings all of a directory to the disk: it must be there before it
// has the name of an entry. Directories become 0755, in spite of the umask.
func (t tree) finish() error {
	if err := t.writeManifest(); err != nil {
		return err
	}
	return diskError(filepath.WalkDir(t.Name(), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = os.Chmod(path, 0o755)
		}
		if err != nil {
			return err
		}
		return syncPath(path)
	}))
}

// place gives a directory the name of the entry. An entry that is there is kept, unless it is to be
// healed: then both change places, so that there is never none. Where a file system cannot do that,
// the old one is removed first.
func (f *Fetcher) place(dir, id string) error {
	entry := filepath.Join(f.Store, id)
	if !slices.Contains(f.Heal, id) || !present(f.Store, id) {
		return f.rename(dir, entry)
	}
	err := f.Touch.do(func() error {
		return unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, entry, unix.RENAME_EXCHANGE)
	}, "exchange %s and %s", dir, entry)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EXDEV) {
		return err
	}
	if err := removeTree(f.Store, id, f.Touch); err != nil {
		return err
	}
	return f.rename(dir, entry)
}

// Collect removes from the store every entry whose digest is not in keep, unfinished directories,
// and kept bytes that no digest in keep still needs. Other names remain. It follows no link and
// enters no mount; what it cannot remove is in the error. touch, which may be nil, is called before
// each removal. No Fetcher may run meanwhile.
func Collect(store string, keep []string, touch Touch) error {
	entries, err := os.ReadDir(store)
	if err != nil {
		return fmt.Errorf("cannot read the artifact store: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if garbage(store, e.Name(), keep) {
			errs = append(errs, discard(store, e.Name(), touch))
		}
	}
	return errors.Join(errs...)
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
	err := touch.do(func() error {
		return os.Rename(filepath.Join(store, name), filepath.Join(store, doomed))
	}, "discard %s", name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
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

// Touch is called before each change of the store, with what is done, and done when it is. An error
// prevents it. It may never return: tests of a killed process stop it there.
type Touch func(what string) (done func(), err error)

// before announces one change; its error is a fault of this machine.
func (t Touch) before(format string, args ...any) (done func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	done, err = t(fmt.Sprintf(format, args...))
	return done, diskError(err)
}

// do announces one change and makes it; what fails is a fault of this machine.
func (t Touch) do(change func() error, format string, args ...any) error {
	done, err := t.before(format, args...)
	if err != nil {
		return err
	}
	defer done()
	return diskError(change())
}

func removeTree(store, name string, touch Touch) error {
	dir, err := os.Open(store)
	if err != nil {
		return fmt.Errorf("cannot open the artifact store: %w", err)
	}
	defer dir.Close()
	return remove.Tree(dir, name, func(what string) (func(), error) {
		return touch.before("%s", what)
	})
}

// writeback is after how many bytes the kernel is asked to write, so that fsync has little left to
// do.
const writeback = 8 << 20

// diskWriter writes a file whose write errors tell that they are this machine's own.
type diskWriter struct {
	f       *os.File
	pending int64
}

func (w *diskWriter) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	if w.pending += int64(n); err == nil && w.pending >= writeback {
		w.pending = 0
		// Only a hint: file systems without it lose nothing but time.
		_ = unix.SyncFileRange(int(w.f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}
	return n, diskError(err)
}

const chunk = 256 << 10 // the size of reads from the network and of writes to the disk

// copyAll copies in chunks, without the shortcuts of io.Copy, whose pieces are smaller.
func copyAll(to io.Writer, from io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, chunk))
	return err
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
