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
)

// The store is a directory of entries <digest>/, each complete and verified from the moment it exists. Beside them are, while
// or after a download: .partial-<digest>-*, a directory being filled, and .download-<digest>[.zst], the bytes of a file that
// has not arrived whole.
const (
	partialPrefix = ".partial-"
	keptPrefix    = ".download-"
)

// Missing gives the artifacts that are not in the store.
func Missing(store string, arts []Artifact) []Artifact {
	return slices.DeleteFunc(slices.Clone(arts), func(a Artifact) bool { return present(store, a.ID) })
}

func present(store, id string) bool {
	info, err := os.Lstat(filepath.Join(store, id))
	return err == nil && info.IsDir()
}

// Files lists the files of an entry, sorted, as slash-separated paths below it: "kubelet", "bin/containerd", "bridge".
func Files(store, id string) ([]string, error) {
	var files []string
	dir := filepath.Join(store, id)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			files = append(files, filepath.ToSlash(strings.TrimPrefix(path, dir+string(filepath.Separator))))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list store entry %s: %w", id, err)
	}
	slices.Sort(files)
	return files, nil
}

// stage makes the directory in which an entry is built.
func (f *Fetcher) stage(a Artifact) (string, error) {
	return os.MkdirTemp(f.Store, partialPrefix+a.ID+"-")
}

// adopt makes an entry of a kept file that has been verified.
func (f *Fetcher) adopt(a Artifact, kept *os.File) error {
	dir, err := f.stage(a)
	if err != nil {
		return diskError(err)
	}
	defer removeTree(f.Store, filepath.Base(dir))
	if err := kept.Chmod(0o755); err != nil {
		return diskError(err)
	}
	if err := os.Rename(kept.Name(), filepath.Join(dir, string(a.Name))); err != nil {
		return diskError(err)
	}
	return f.commit(dir, a.ID)
}

// commit makes a filled and verified directory the entry id, durably: everything in it reaches the disk before its name.
func (f *Fetcher) commit(dir, id string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return diskError(err)
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncPath(path)
	})
	if err != nil {
		return diskError(err)
	}
	err = os.Rename(dir, filepath.Join(f.Store, id))
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

// Collect removes from the store every entry whose digest is not in keep, and what downloads have left over: unfinished
// directories, and kept bytes that no digest in keep still needs. Names that are not the store's own stay. It follows no link
// and enters no mount; what it cannot remove is in the error, and the rest is removed nonetheless. No Fetcher may run meanwhile.
func Collect(store string, keep []string) (removed []string, err error) {
	entries, err := os.ReadDir(store)
	if err != nil {
		return nil, fmt.Errorf("cannot read the artifact store: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !garbage(store, e.Name(), keep) {
			continue
		}
		if err := removeTree(store, e.Name()); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, e.Name())
	}
	return removed, errors.Join(errs...)
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
