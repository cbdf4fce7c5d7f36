package remove

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Everything below a name goes, each entry after its touch; what a touch refuses stays, with the
// directories above it, and all else goes nonetheless.
func TestTree(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"a/b/c", "a/d"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"a/b/kept", "a/b/c/1", "a/d/2"} {
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tree := filepath.Join(root, "a")
	refused, touched := errors.New("refused"), 0
	refuse := func(what string) (func(), error) {
		if touched++; what == "remove kept" {
			return nil, refused
		}
		return func() {}, nil
	}
	if err := Tree(tree, refuse); !errors.Is(err, refused) || touched < 6 {
		t.Errorf("%d touches, %v", touched, err)
	}
	left, err := filepath.Glob(filepath.Join(root, "*/*/*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "kept" {
		t.Errorf("left are %v, %v", left, err)
	}
	if gone, err := filepath.Glob(filepath.Join(root, "a/d")); err != nil || len(gone) > 0 {
		t.Errorf("left are %v, %v", gone, err)
	}
	all := func(string) (func(), error) { return func() {}, nil }
	if err := Tree(tree, all); err != nil {
		t.Error(err)
	}
	if err := Tree(tree, all); err != nil {
		t.Errorf("what is not there: %v", err)
	}
}

// A directory that a pod replaces with a link while it is removed takes nothing else away.
func TestLinkInItsPlace(t *testing.T) {
	root := t.TempDir()
	dir, others := filepath.Join(root, "tree", "dir"), filepath.Join(root, "others")
	file := filepath.Join(others, "file")
	err := errors.Join(os.MkdirAll(dir, 0o700), os.Mkdir(others, 0o700),
		os.WriteFile(file, nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	err = Tree(filepath.Dir(dir), func(what string) (func(), error) {
		return func() { // it was seen to be a directory, and is not open yet
			if what == "remove dir" {
				_ = os.Rename(dir, dir+".moved")
				_ = os.Symlink("../others", dir)
			}
		}, nil
	})
	if _, gone := os.Lstat(file); err == nil || gone != nil {
		t.Errorf("%v; the file of others: %v", err, gone)
	}
}

// A pod can nest directories without a limit. More than 100 are not open at a time.
func TestDepth(t *testing.T) {
	const depth = 1000
	root, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	name, at := strings.Repeat("n", 255), int(root.Fd())
	for range depth {
		err := unix.Mkdirat(at, name, 0o700)
		next, err2 := unix.Openat(at, name, unix.O_DIRECTORY, 0)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if at != int(root.Fd()) {
			unix.Close(at)
		}
		at = next
	}
	unix.Close(at)
	open, most := func() int { list, _ := os.ReadDir("/proc/self/fd"); return len(list) }, 0
	before := open()
	err = Tree(filepath.Join(root.Name(), name), func(string) (func(), error) {
		most = max(most, open()-before)
		return func() {}, nil
	})
	if left, _ := root.Readdirnames(1); err != nil || most > 110 || len(left) > 0 {
		t.Errorf("%v, %d are open, left are %v", err, most, left)
	}
}
