package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/remove"
)

// The store is a directory of entries <digest>/, each complete and verified from the moment it
// exists. During and after a download it also holds .partial-<digest>, a directory being filled,
// and .download-<digest>[.zst], the bytes of an incomplete file.
const partialPrefix, keptPrefix = ".partial-", ".download-"

// Missing returns the artifacts that are not in the store.
func Missing(store string, arts []Artifact) []Artifact {
	return slices.DeleteFunc(slices.Clone(arts), func(a Artifact) bool { return present(store, a.ID) })
}

func present(store, id string) bool {
	info, err := os.Lstat(filepath.Join(store, id))
	return err == nil && info.IsDir()
}

// build makes the entry of an artifact: fill writes verified files to a new directory.
func (f *Fetcher) build(a Artifact, fill func(tree) error) error {
	name := partialPrefix + a.ID
	dir := filepath.Join(f.Store, name)
	err := f.Touch.do(func() error { // a killed process may have left one
		return errors.Join(removeTree(f.Store, name, f.Touch), os.Mkdir(dir, 0o700))
	}, "make a directory for %s", a)
	if err != nil {
		return err
	}
	// Removes a directory that did not become an entry. Collect removes what this cannot.
	defer func() { _ = removeTree(f.Store, name, f.Touch) }()
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

// finish writes the manifest and syncs the directory to disk, before it gets the name of an entry.
// It sets directories to 0755, whatever the umask.
func (t tree) finish() error {
	m, err := list(t.Root, func() error { return nil })
	if err != nil {
		return diskError(err)
	}
	text, _ := json.Marshal(m) // strings can be encoded
	if err := t.writeFile(manifestName, 0o644, bytes.NewReader(text)); err != nil {
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

// place renames a directory to its entry. An existing entry is kept, unless it is to be healed:
// then both are exchanged, so that the entry always exists. If the file system cannot exchange, the
// old one is removed first.
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
// and downloaded bytes that no digest in keep needs. Other names remain. It follows no links and
// enters no mounts; the error reports what it cannot remove. touch, which may be nil, is called
// before each removal. No Fetcher may run meanwhile.
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

// discard removes a name from the store. It first renames an entry to an unfinished one, so that a
// killed process leaves no partial entry.
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
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
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

// Touch is called with a description before each change of the store, and done after it. An error
// prevents the change. Touch may never return: tests stop a killed process there.
type Touch func(what string) (done func(), err error)

// before announces one change; its error is a local fault.
func (t Touch) before(what string) (done func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	done, err = t(what)
	return done, diskError(err)
}

// do announces one change and makes it; errors are local faults.
func (t Touch) do(change func() error, format string, args ...any) error {
	done, err := t.before(fmt.Sprintf(format, args...))
	if err != nil {
		return err
	}
	defer done()
	return diskError(change())
}

func removeTree(store, name string, touch Touch) error {
	return remove.Tree(filepath.Join(store, name), touch.before)
}

// writeback is the number of bytes after which the kernel is asked to write: fsync is then short.
const writeback = 8 << 20

// diskWriter writes a file and marks write errors as local faults.
type diskWriter struct {
	f       *os.File
	pending int64
}

func (w *diskWriter) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	if w.pending += int64(n); err == nil && w.pending >= writeback {
		w.pending = 0
		// This is only a hint: file systems that do not support it lose only time.
		_ = unix.SyncFileRange(int(w.f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}
	return n, diskError(err)
}

const chunk = 256 << 10 // the size of reads from the network and of writes to the disk

// copyAll copies in chunks. It avoids the shortcuts of io.Copy, which use smaller pieces.
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

// manifestName is the file with the original contents of an entry. No archive may have such a file.
const manifestName = ".manifest"

// manifest maps the path of each file below an entry to its mode in octal, with setuid, setgid and
// sticky bits, followed by a space and the SHA-256 of its content; a link has none.
type manifest map[string]string

// Unsound reports whether an entry is missing or differs from its manifest. It reads every file,
// and calls alive before each. The error is ctx's.
func Unsound(ctx context.Context, store, id string, alive func()) (bool, error) {
	same := intact(filepath.Join(store, id), func() error {
		alive()
		return ctx.Err()
	})
	return !same || !present(store, id), ctx.Err()
}

func intact(entry string, each func() error) bool {
	root, err := os.OpenRoot(entry)
	if err != nil {
		return false
	}
	defer root.Close()
	text, err := root.ReadFile(manifestName)
	var made manifest
	if err != nil || json.Unmarshal(text, &made) != nil {
		return false
	}
	is, err := list(root, each)
	return err == nil && maps.Equal(made, is)
}

// list reads all files below a directory, following no links. It stops at the first error of each.
func list(root *os.Root, each func() error) (manifest, error) {
	m := manifest{}
	err := fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || path == manifestName {
			return err
		}
		if err := each(); err != nil {
			return err
		}
		info, err := root.Lstat(path)
		if err != nil {
			return err
		}
		sum := ""
		if info.Mode().IsRegular() {
			sum, err = digestOf(root, path)
		}
		m[path] = fmt.Sprintf("%04o %s", info.Sys().(*syscall.Stat_t).Mode&0o7777, sum)
		return err
	})
	return m, err
}

func digestOf(root *os.Root, path string) (string, error) {
	f, err := root.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	err = copyAll(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// digest is a running hash with its expected value, whose length determines the algorithm.
type digest struct {
	hash.Hash
	want string
}

func newDigest(want string) *digest {
	if len(want) == 2*sha512.Size {
		return &digest{Hash: sha512.New(), want: want}
	}
	return &digest{Hash: sha256.New(), want: want}
}

func (d *digest) mismatch() *Error {
	got := hex.EncodeToString(d.Sum(nil))
	if got == d.want {
		return nil
	}
	return &Error{Cause: Digest, what: fmt.Sprintf("its digest is %s, expected %s", got, d.want)}
}

// isDigest reports whether s is lower-case hex of SHA-256 or SHA-512, as every entry's name is.
func isDigest(s string) bool {
	return (len(s) == 2*sha256.Size || len(s) == 2*sha512.Size) &&
		strings.Trim(s, "0123456789abcdef") == ""
}
