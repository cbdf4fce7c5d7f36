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
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
	made, is, err := manifests(filepath.Join(store, id), each)
	if err != nil {
		return fmt.Errorf("cannot verify store entry %.12s: %w", id, err)
	}
	if wrong := made.differences(is); len(wrong) > 0 {
		return fmt.Errorf("store entry %.12s is damaged: %s", id, strings.Join(wrong, ", "))
	}
	return nil
}

// manifests returns the manifest that an entry was made with, and the one that it would have now.
func manifests(entry string, each func() error) (made, is manifest, err error) {
	root, err := os.OpenRoot(entry)
	if err != nil {
		return made, is, err
	}
	defer root.Close()
	text, err := root.ReadFile(manifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return made, is, ErrNoManifest
	}
	if err == nil {
		err = json.Unmarshal(text, &made)
	}
	if err == nil {
		is, err = list(root, each)
	}
	return made, is, err
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
		bits := info.Sys().(*syscall.Stat_t).Mode & 0o7777
		f := listed{Path: path, Mode: fmt.Sprintf("%04o", bits)}
		if info.Mode().IsRegular() {
			f.SHA256, err = digestOf(root, path)
		}
		m.Files = append(m.Files, f)
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

// digest is a running hash and the value it must come to; the number of hex digits tells the
// algorithm.
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

// mismatch is nil when the hash has come to the right value.
func (d *digest) mismatch() *Error {
	got := hex.EncodeToString(d.Sum(nil))
	if got == d.want {
		return nil
	}
	return &Error{Cause: Digest, what: fmt.Sprintf("its digest is %s, expected %s", got, d.want)}
}

// isDigest reports whether s is lower-case hex of SHA-256 or SHA-512; only such a name is ever an
// entry of the store.
func isDigest(s string) bool {
	return (len(s) == 2*sha256.Size || len(s) == 2*sha512.Size) &&
		strings.Trim(s, "0123456789abcdef") == ""
}

// writeManifest makes the manifest of a directory that is about to become an entry.
func (t tree) writeManifest() error {
	m, err := list(t.Root, nil)
	if err != nil {
		return diskError(err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	return t.writeFile(manifestName, 0o644, bytes.NewReader(text))
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
