package lab

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A machine has all files of its base system, shares none that it may modify, and is bound to the
// tree that is not copied.
func TestCopySystem(t *testing.T) {
	base, root := t.TempDir(), filepath.Join(t.TempDir(), "machines", "m")
	shared := map[string]bool{
		"etc/debian_version": false, "usr/lib/os-release": true,
		"usr/lib/systemd/system/x.service": false, "usr/bin/tool": true, "usr/local/bin/mine": false,
		"usr/share/doc/x": true, "usr/lib/x86_64-linux-gnu/libc.so": true, pythonTree + "/x.py": true,
	}
	for path := range shared {
		file := filepath.Join(base, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(path), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("usr/lib", filepath.Join(base, "lib")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(base, "usr/lib"), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := copySystem(t.Context(), base, root); err != nil {
		t.Fatal(err)
	}
	for path, want := range shared {
		theirs, err := os.Stat(filepath.Join(base, path))
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(root, path)
		if rest, ok := strings.CutPrefix(path, pythonTree); ok {
			at = boundTree(root) + rest
		}
		ours, err := os.Stat(at)
		if err != nil {
			t.Fatal(err)
		}
		if os.SameFile(theirs, ours) != want || ours.Mode() != theirs.Mode() {
			t.Errorf("%s: %v, shared=%t, want %t", path, ours.Mode(), !want, want)
		}
		if text, err := os.ReadFile(at); string(text) != path {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	if to, err := os.Readlink(filepath.Join(root, "lib")); to != "usr/lib" {
		t.Errorf("the link: %q, %v", to, err)
	}
	lib, err := os.Stat(filepath.Join(root, "usr/lib"))
	if err != nil || lib.Mode().Perm() != 0o711 {
		t.Errorf("usr/lib: %v, %v", lib, err)
	}
	if left, _ := filepath.Glob(filepath.Dir(root) + "/*.link"); len(left) != 0 {
		t.Errorf("left: %s", strings.Join(left, " "))
	}
}

// Two programs that share a cache install a base system once.
func TestBaseSystemOnce(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	script := "#!/bin/sh\necho >>" + dir + "/runs\nfor to; do :; done\n" +
		"[ ! -e $to/done ] || exit 1\nmkdir -p $to && touch $to/begun && sleep 1 && touch $to/done\n"
	if err := os.WriteFile(filepath.Join(dir, "mmdebstrap"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	var both sync.WaitGroup
	for range 2 {
		l := &Lab{Cache: cache, Say: func(string, ...any) {}}
		both.Go(func() {
			base, err := l.baseSystem(t.Context(), []string{"x"})
			if err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(base, "done")); err != nil {
				t.Errorf("it is not whole: %v", err)
			}
		})
	}
	both.Wait()
	if runs, err := os.ReadFile(filepath.Join(dir, "runs")); string(runs) != "\n" {
		t.Errorf("it was installed %d times, %v", len(runs), err)
	}
}
