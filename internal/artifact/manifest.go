package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// manifestName is the file that says what an entry held when made. No archive may have one.
const manifestName = ".manifest"

// manifest says of each file of an entry, by its path below the entry, its mode in octal, with
// setuid, setgid and sticky bits, and after a space the SHA-256 of its content; a link has none.
type manifest map[string]string

// Verify compares an entry with its manifest, reading all of it. It calls each before each file,
// and ends with its error. The error says every difference.
func Verify(store, id string, each func() error) error {
	wrong, err := differences(filepath.Join(store, id), each)
	if err != nil {
		return fmt.Errorf("cannot verify store entry %.12s: %w", id, err)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("store entry %.12s is damaged: %s", id, strings.Join(wrong, ", "))
	}
	return nil
}

// differences says in words how the files of an entry differ from those that it was made with.
func differences(entry string, each func() error) (wrong []string, err error) {
	root, err := os.OpenRoot(entry)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	text, err := root.ReadFile(manifestName)
	if err != nil {
		return nil, err
	}
	var made manifest
	if err := json.Unmarshal(text, &made); err != nil {
		return nil, err
	}
	is, err := list(root, each)
	if err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(made)) {
		mode, content, _ := strings.Cut(made[path], " ")
		nowMode, now, there := strings.Cut(is[path], " ")
		switch {
		case !there:
			wrong = append(wrong, path+" is missing")
		case now != content:
			wrong = append(wrong, path+" has another content")
		case nowMode != mode:
			wrong = append(wrong, fmt.Sprintf("%s has mode %s instead of %s", path, nowMode, mode))
		}
		delete(is, path)
	}
	for _, path := range slices.Sorted(maps.Keys(is)) {
		wrong = append(wrong, path+" does not belong there")
	}
	return wrong, nil
}

// list reads all files below a directory. It follows no link. It calls each before each file, and
// ends with its error.
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

// digest is a running hash and the value it must come to, whose length tells the algorithm.
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

func (t tree) writeManifest() error {
	m, err := list(t.Root, func() error { return nil })
	if err != nil {
		return diskError(err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	return t.writeFile(manifestName, 0o644, bytes.NewReader(text))
}

// Unsound reports whether an artifact is missing in a store, or not what was verified. alive is
// called as work goes on. The error is that of ctx.
func Unsound(ctx context.Context, store, id string, alive func()) (bool, error) {
	err := Verify(store, id, func() error {
		alive()
		return ctx.Err()
	})
	return err != nil || !present(store, id), ctx.Err()
}
