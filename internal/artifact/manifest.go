package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// manifestName is the file of an entry that says what the entry held when it was made. No archive
// may have one of its own.
const manifestName = ".manifest"

// ErrNoManifest tells that an entry cannot be verified: it was made by an older release, or by
// hand.
var ErrNoManifest = errors.New("it has no manifest")

// manifest lists the files of an entry, sorted by path.
type manifest struct {
	Files []listed `json:"files"`
}

// listed is one file of an entry; its path is below the entry, with slashes.
type listed struct {
	Path   string `json:"path"`
	Mode   string `json:"mode"` // octal, with setuid, setgid and sticky bits
	SHA256 string `json:"sha256"`
}

// Verify compares an entry with its manifest, reading all of it. It calls each, unless that is nil,
// before each file, and ends with its error. The error is ErrNoManifest for an entry that has none,
// and else says every difference.
func Verify(store, id string, each func() error) error {
	root, err := os.OpenRoot(filepath.Join(store, id))
	if err != nil {
		return fmt.Errorf("cannot verify store entry %.12s: %w", id, err)
	}
	defer root.Close()
	text, err := root.ReadFile(manifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot verify store entry %.12s: %w", id, ErrNoManifest)
	}
	var made, is manifest
	if err == nil {
		err = json.Unmarshal(text, &made)
	}
	if err == nil {
		is, err = list(root, each)
	}
	if err != nil {
		return fmt.Errorf("cannot verify store entry %.12s: %w", id, err)
	}
	if wrong := made.differences(is); len(wrong) > 0 {
		return fmt.Errorf("store entry %.12s is damaged: %s", id, strings.Join(wrong, ", "))
	}
	return nil
}

// differences says in words how the files of an entry differ from those that it was made with.
func (m manifest) differences(is manifest) []string {
	var wrong []string
	found := map[string]listed{}
	for _, f := range is.Files {
		found[f.Path] = f
	}
	for _, want := range m.Files {
		got, ok := found[want.Path]
		delete(found, want.Path)
		switch {
		case !ok:
			wrong = append(wrong, want.Path+" is missing")
		case got.SHA256 != want.SHA256:
			wrong = append(wrong, want.Path+" has another content")
		case got.Mode != want.Mode:
			wrong = append(wrong, fmt.Sprintf("%s has mode %s instead of %s", want.Path, got.Mode,
				want.Mode))
		}
	}
	for _, f := range is.Files {
		if _, extra := found[f.Path]; extra {
			wrong = append(wrong, f.Path+" does not belong there")
		}
	}
	return wrong
}

// list reads all files below a directory. It follows no link: a link is listed without a digest. It
// calls each, unless that is nil, before each file, and ends with its error.
func list(root *os.Root, each func() error) (manifest, error) {
	var m manifest
	err := fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || path == manifestName {
			return err
		}
		if each != nil {
			if err := each(); err != nil {
				return err
			}
		}
		info, err := root.Lstat(path)
		if err != nil {
			return err
		}
		f := listed{Path: path, Mode: octal(info.Mode())}
		if info.Mode().IsRegular() {
			f.SHA256, err = digestOf(root, path)
		}
		m.Files = append(m.Files, f)
		return err
	})
	return m, err
}

func octal(mode fs.FileMode) string {
	bits := uint32(mode.Perm())
	for i, special := range []fs.FileMode{fs.ModeSticky, fs.ModeSetgid, fs.ModeSetuid} {
		if mode&special != 0 {
			bits |= 0o1000 << i
		}
	}
	return fmt.Sprintf("%04o", bits)
}

func digestOf(root *os.Root, path string) (string, error) {
	f, err := root.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.CopyBuffer(sum, struct{ io.Reader }{f}, make([]byte, chunk)); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// writeManifest makes the manifest of a directory that is about to become an entry.
func writeManifest(t tree) error {
	m, err := list(t.Root, nil)
	if err != nil {
		return diskError(err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	return t.writeFile(manifestName, 0o644, strings.NewReader(string(text)))
}

// Unsound reports whether an artifact is missing in a store, or not what was verified. proved is
// for one that has no manifest. alive is called as work goes on. The error is that of ctx.
func Unsound(
	ctx context.Context, store, id string, proved bool, alive func(),
) (bool, error) {
	if len(Missing(store, []Artifact{{ID: id}})) > 0 {
		return true, nil
	}
	err := Verify(store, id, func() error {
		alive()
		return ctx.Err()
	})
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return err != nil && (proved || !errors.Is(err, ErrNoManifest)), nil
}
