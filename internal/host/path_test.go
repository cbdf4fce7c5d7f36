package host

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Whatever is at a path can be replaced by whatever shall be there, and back.
func TestSetPaths(t *testing.T) {
	h := testHost(t)
	file := state.NewFile("/x", 0o640, "text")
	link := state.Link{Path: "/x", Target: "/nowhere"}
	dir := state.Dir{Path: "/x", Mode: 0o750, Purge: true}
	absent := state.Absent{Path: "/x"}
	for _, to := range []state.Resource{
		file, link, absent, dir, file, dir, link, dir, absent, link, file, absent,
	} {
		set(t, h, state.Change{To: to})
	}
	if err := h.Flush(); err != nil || len(h.unsynced) > 0 {
		t.Errorf("not flushed: %v, %v", h.unsynced, err)
	}
}

// Several goroutines change and flush one machine, and a directory that cannot be synced remains
// for the next Flush.
func TestFlushTogether(t *testing.T) {
	h := testHost(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				h.changed(h.path("/"))
				if err := h.Flush(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	set(t, h, state.Change{To: state.NewFile("/x", 0o600, "")})
	broken := h.path("/x/below-a-file")
	for range 2 {
		h.changed(h.path("/"))
		h.changed(broken)
		if err := h.Flush(); err == nil || len(h.unsynced) != 1 || !h.unsynced[broken] {
			t.Errorf("left to sync are %v, %v", h.unsynced, err)
		}
	}
}

// A file is the bytes that its digest says, or it is not written at all.
func TestFileContent(t *testing.T) {
	h := testHost(t)
	file := state.File{Path: "/x", Mode: 0o600, SHA256: state.Digest("kept")}
	for _, text := range []string{"other", "kept"} {
		content := func(string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(text)), nil
		}
		err := h.Set(t.Context(), state.Change{To: file}, content)
		if (err == nil) != (text == "kept") {
			t.Errorf("content %q: %v", text, err)
		}
		if left, _ := filepath.Glob(h.path("/.x*")); len(left) > 0 {
			t.Errorf("left are %v", left)
		}
	}
	none := func(string) (io.ReadCloser, error) { return nil, fs.ErrNotExist }
	err := h.Set(t.Context(), state.Change{To: file}, none)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
	if data, err := h.ReadFile("/x"); err != nil || string(data) != "kept" {
		t.Errorf("it is %q, %v", data, err)
	}
}

func TestPathErrors(t *testing.T) {
	h := testHost(t)
	for _, to := range []state.Resource{
		state.NewFile("/none/x", 0o600, ""), state.Link{Path: "/none/x"},
		state.Dir{Path: "/none/x"}, state.Cordon{},
	} {
		if err := h.Set(t.Context(), state.Change{To: to}, nil); err == nil {
			t.Errorf("%s was set", to.Key())
		}
	}
	write(t, h, "/full/x", "an admin's")
	from := observe(t, h, "path:/full")
	for _, to := range []state.Resource{
		state.NewFile("/full", 0o600, ""), state.Link{Path: "/full"},
	} {
		if err := h.Set(t.Context(), state.Change{From: from, To: to}, nil); err == nil {
			t.Errorf("a full directory became %s", state.Show(to))
		}
	}
	c := state.Change{From: from, To: state.Absent{Path: "/full"}}
	if err := h.Set(t.Context(), c, nil); err != nil {
		t.Errorf("a directory that others use is an error: %v", err)
	}
	if err := unix.Mkfifo(h.path("/fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, key := range []state.Key{"path:/fifo", "node:cordon"} {
		if _, err := h.Observe(t.Context(), key); err == nil {
			t.Errorf("%s was observed", key)
		}
	}
	if r := observe(t, h, "path:/full/x/y"); r.Key() != "path:/full/x/y" {
		t.Errorf("below a file is %v", r)
	}
}

// Every change goes through Touch before it happens: where that ends a run, nothing has changed.
// What Touch returned is called when it has happened.
func TestTouch(t *testing.T) {
	stop := errors.New("killed")
	changes := map[string]func(*Host) error{
		"write": func(h *Host) error {
			return h.Set(t.Context(), state.Change{To: state.NewFile("/b", 0o600, "b")}, nil)
		},
		"link": func(h *Host) error {
			return h.Set(t.Context(), state.Change{To: state.Link{Path: "/b", Target: "a"}}, nil)
		},
		"mkdir": func(h *Host) error {
			return h.Set(t.Context(), state.Change{To: state.Dir{Path: "/b"}}, nil)
		},
		"remove": func(h *Host) error {
			return h.Set(t.Context(), state.Change{To: state.Absent{Path: "/a"}}, nil)
		},
		"purge":  func(h *Host) error { return h.purge("/d", nil) },
		"backup": func(h *Host) error { return h.Backup(t.Context(), fileOf("/a", "a"), "/d") },
		"keep": func(h *Host) error {
			_, err := h.Keep(t.Context(), fileOf("/a", "a"))
			return err
		},
		"sweep": func(h *Host) error { return h.Sweep([]state.Key{"path:/t"}) },
		"run": func(h *Host) error {
			_, err := h.Run(t.Context(), time.Minute, []byte("s"), "true", "x")
			return err
		},
		"terminal": func(h *Host) error {
			return h.RunOnTerminal(t.Context(), time.Minute, nil, "touch", h.path("/b"))
		},
		"reload": func(h *Host) error { return h.Reload(t.Context()) },
		"unit":   func(h *Host) error { return h.RestartUnit(t.Context(), "x.service") },
		"reset":  func(h *Host) error { return h.jobAfterReset(t.Context(), Stop, "x.service") },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			machine := func() *Host {
				h := testHost(t)
				h.SecretDir = "/run"
				write(t, h, "/a", "a")
				write(t, h, "/d/e/f", "f")
				write(t, h, tempName("/t"), "unfinished")
				write(t, h, "/run/.secret-1.json", "secret")
				return h
			}
			h := machine()
			before := tree(t, h)
			h.Touch = func(string) (func(), error) { return nil, stop }
			if err := change(h); !errors.Is(err, stop) {
				t.Errorf("the error is %v", err)
			}
			if after := tree(t, h); !slices.Equal(before, after) {
				t.Errorf("the machine was changed: %v, then %v", before, after)
			}
			if done := h.Systemd.(*units).done; len(done) > 0 {
				t.Errorf("systemd was told to %v", done)
			}

			h = machine()
			underWay := 0
			var last []string
			h.Touch = func(string) (func(), error) {
				underWay++
				return func() { underWay--; last = tree(t, h) }, nil
			}
			if err := change(h); err != nil {
				t.Error(err)
			}
			if after := tree(t, h); underWay != 0 || !slices.Equal(last, after) {
				t.Errorf("%d changes are under way, and after the last there was %v, then %v",
					underWay, last, after)
			}
		})
	}
}

func fileOf(path, text string) state.File {
	return state.File{Path: path, Mode: 0o644, SHA256: state.Digest(text)}
}

func tree(t *testing.T, h *Host) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(h.Root, func(p string, d fs.DirEntry, err error) error {
		names = append(names, p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// What a killed run has left is removed: unfinished files and secrets.
func TestSweep(t *testing.T) {
	h := testHost(t)
	h.SecretDir = "/run"
	write(t, h, tempName("/t"), "unfinished")
	write(t, h, "/run/.secret-1.json", "secret")
	if err := h.Sweep([]state.Key{"path:/t", "path:/u", "unit:x.service"}); err != nil {
		t.Fatal(err)
	}
	missing(t, h, tempName("/t"))
	missing(t, h, "/run/.secret-1.json")
}

// Copies never overwrite anything, and none is made twice (M1).
func TestKeep(t *testing.T) {
	h := testHost(t)
	write(t, h, "/x", "mine")
	write(t, h, "/x.aks-flex-node-kept", "something else")
	for range 2 {
		kept, err := h.Keep(t.Context(), observe(t, h, "path:/x"))
		if err != nil || kept != "/x.aks-flex-node-kept.1" {
			t.Fatalf("kept as %s, %v", kept, err)
		}
	}
	if data, err := h.ReadFile("/x.aks-flex-node-kept.1"); err != nil || string(data) != "mine" {
		t.Errorf("the copy is %q, %v", data, err)
	}
	link := state.Link{Path: "/l", Target: "/elsewhere"}
	set(t, h, state.Change{To: link})
	kept, err := h.Keep(t.Context(), link)
	if err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(h.path(kept)); err != nil || target != link.Target {
		t.Errorf("the copy leads to %s, %v", target, err)
	}
	if _, err := h.Keep(t.Context(), state.Dir{Path: "/d"}); err == nil {
		t.Error("a copy of a directory was kept")
	}
	if _, err := h.Keep(t.Context(), fileOf("/gone", "x")); err == nil {
		t.Error("a copy of nothing was kept")
	}
}

func TestBackup(t *testing.T) {
	h := testHost(t)
	write(t, h, "/x", "mine")
	mkdir(t, h, "/before")
	for range 2 {
		if err := h.Backup(t.Context(), fileOf("/x", "mine"), "/before"); err != nil {
			t.Fatal(err)
		}
	}
	got := observe(t, h, state.PathKey("/before/"+state.Digest("mine")))
	if f, ok := got.(state.File); !ok || f.Mode != 0o600 {
		t.Errorf("the backup is %s", state.Show(got))
	}
}
