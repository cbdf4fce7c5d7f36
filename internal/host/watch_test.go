package host

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	godbus "github.com/godbus/dbus/v5"
)

// A hint reports each change of a watched file; changes beside it cause none.
func TestWatchFiles(t *testing.T) {
	root := t.TempDir()
	h := New(root, slog.New(slog.DiscardHandler))
	file := func(name string) string { return filepath.Join(root, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(file("etc/dir"), 0o755))
	must(os.WriteFile(file("etc/a"), nil, 0o600))
	ctx, stop := context.WithCancel(t.Context())
	hints, ended := make(chan string, 64), make(chan error)
	paths := []string{"/etc/a", "/etc/dir", "/etc/dir/b", "/none/c"}
	go func() { ended <- h.watchFiles(ctx, paths, func(what string) { hints <- what }) }()
	// It is not told when the watches are there: the first change is made until it is seen.
	next := func(want string, change func() error) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			must(change())
			for wait := time.After(100 * time.Millisecond); wait != nil; {
				select {
				case got := <-hints:
					if got == want {
						return
					}
				case <-wait:
					wait = nil
				}
			}
		}
		t.Fatalf("%s is not told", want)
	}
	next("/etc/a", func() error { return os.WriteFile(file("etc/a"), []byte("x"), 0o600) })
	next("/etc/a", func() error { return os.Chmod(file("etc/a"), 0o644) })
	must(os.WriteFile(file("etc/beside"), []byte("x"), 0o600))
	next("/etc/dir/b", func() error {
		return os.WriteFile(file("etc/dir/b"), nil, 0o600)
	})
	must(os.Remove(file("etc/a")))
	for got := range hints {
		if got == "/etc/beside" {
			t.Error("a file that is not watched is reported")
		}
		if got == "/etc/a" {
			break
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A directory that is removed or moved away, and made again, is watched again; one that cannot be
// watched keeps no other from being.
func TestWatchFilesAgain(t *testing.T) {
	root := t.TempDir()
	var log strings.Builder
	h := New(root, slog.New(slog.NewTextHandler(&log, nil)))
	file := func(name string) string { return filepath.Join(root, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(file("etc/dir"), 0o755))
	must(os.Symlink("loop", file("etc/loop")))
	must(os.Symlink("dir", file("etc/link")))
	ctx, stop := context.WithCancel(t.Context())
	hints, ended := make(chan string, 1024), make(chan error)
	paths := []string{"/etc/dir", "/etc/loop/c"}
	for _, name := range []string{"first", "again", "moved"} {
		paths = append(paths, "/etc/dir/"+name, "/etc/link/"+name)
	}
	go func() { ended <- h.watchFiles(ctx, paths, func(what string) { hints <- what }) }()
	// The hints of all earlier changes come before those of the file, by both of its names. Each
	// time it is another file, which had no hint yet.
	watched := func(name string) {
		t.Helper()
		missing := []string{"/etc/dir/" + name, "/etc/link/" + name}
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			must(os.WriteFile(file("etc/dir/"+name), nil, 0o600))
			for wait := time.After(100 * time.Millisecond); wait != nil; {
				select {
				case got := <-hints:
					missing = slices.DeleteFunc(missing, func(path string) bool { return path == got })
					if len(missing) == 0 {
						return
					}
				case <-wait:
					wait = nil
				}
			}
		}
		t.Fatalf("%q is not watched", missing)
	}
	watched("first")
	must(os.RemoveAll(file("etc/dir")))
	must(os.Mkdir(file("etc/dir"), 0o755))
	watched("again")
	must(os.Rename(file("etc/dir"), file("etc/former")))
	must(os.Mkdir(file("etc/dir"), 0o755))
	watched("moved")
	// told returns the hints until now: of a directory's mode after all earlier ones.
	told := func(mode os.FileMode) (before []string) {
		must(os.Chmod(file("etc/dir"), mode))
		for got := range hints {
			if got == "/etc/dir" {
				return before
			}
			before = append(before, got)
		}
		return before
	}
	told(0o700)
	for len(hints) > 0 {
		<-hints
	}
	must(os.WriteFile(file("etc/former/moved"), nil, 0o600))
	if wrong := told(0o755); slices.Contains(wrong, "/etc/dir/moved") {
		t.Errorf("what was moved away is still watched: %q", wrong)
	}
	stop()
	must(<-ended)
	n := strings.Count(log.String(), "/etc/loop")
	if n == 0 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("the log is %s", log.String())
	}
}

func TestUnitChange(t *testing.T) {
	properties := func(names ...string) []any {
		changed := map[string]godbus.Variant{}
		for _, name := range names {
			changed[name] = godbus.MakeVariant("x")
		}
		return []any{"org.freedesktop.systemd1.Unit", changed, []string{}}
	}
	for _, tt := range []struct {
		body []any
		want bool
	}{
		{properties("ActiveState", "SubState"), true},
		{properties("MemoryCurrent"), false},
		{nil, false},
		{[]any{1, 2}, false},
	} {
		if got := isUnitChange(&godbus.Signal{Body: tt.body}); got != tt.want {
			t.Errorf("%v: %t", tt.body, got)
		}
	}
}
