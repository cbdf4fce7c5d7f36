package artifact

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// makeEntry makes an entry with two files and its manifest.
func (r *rig) makeEntry(t *testing.T) (Artifact, string) {
	t.Helper()
	a, targz, _ := archive(t)
	hosts := map[string]http.HandlerFunc{"upstream": serve(targz, "")}
	f := &Fetcher{Store: r.Store, Artifacts: []Artifact{a},
		Source: Source{HTTP: newNetwork(t, hosts).client(t)}}
	if err := run(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	return a, filepath.Join(r.Store, a.ID)
}

func quietly() error { return nil }

// sound reports whether an entry is present and undamaged.
func sound(t *testing.T, store, id string) bool {
	t.Helper()
	bad, err := Unsound(t.Context(), store, id, func() {})
	must(t, err)
	return !bad
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever happens to an entry after it was made is seen.
func TestDamageIsSeen(t *testing.T) {
	tests := []struct {
		name   string
		damage func(t *testing.T, dir string)
	}{
		{"none", func(*testing.T, string) {}},
		{"another content of the same length", func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "README"), []byte("READ ME"), 0o644))
		}},
		{"cut short", func(t *testing.T, dir string) {
			must(t, os.Truncate(filepath.Join(dir, "bin/containerd"), 100_000))
		}},
		{"no longer executable", func(t *testing.T, dir string) {
			must(t, os.Chmod(filepath.Join(dir, "bin/containerd"), 0o644))
		}},
		{"setuid", func(t *testing.T, dir string) {
			must(t, os.Chmod(filepath.Join(dir, "bin/containerd"), 0o755|os.ModeSetuid))
		}},
		{"removed", func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "bin/containerd")))
		}},
		{"a link in its place", func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "README")))
			must(t, os.Symlink("/etc/hostname", filepath.Join(dir, "README")))
		}},
		{"one file more", func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "bin/other"), nil, 0o755))
		}},
		{"a manifest that is cut short", func(t *testing.T, dir string) {
			must(t, os.Truncate(filepath.Join(dir, manifestName), 10))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, nil, nil)
			a, dir := r.makeEntry(t)
			tt.damage(t, dir)
			if got := sound(t, r.Store, a.ID); got != (tt.name == "none") {
				t.Errorf("sound: %v", got)
			}
		})
	}
}

// An entry without a manifest was not made by the agent: it is damaged, as one that is absent.
func TestEntryWithoutManifest(t *testing.T) {
	store, id := t.TempDir(), sha([]byte("old"))
	populate(t, store, id+"/kubelet")
	if sound(t, store, id) {
		t.Error("it is sound")
	}
	if sound(t, store, sha([]byte("absent"))) {
		t.Error("an entry that is not there is sound")
	}
}

// Each file is announced before it is read, and none is read any more once the context has ended.
func TestUnsoundEnds(t *testing.T) {
	r := newRig(t, nil, nil)
	a, _ := r.makeEntry(t)
	files := 0
	bad, err := Unsound(t.Context(), r.Store, a.ID, func() { files++ })
	if bad || err != nil || files < 2 {
		t.Errorf("%v, %v; %d files are announced", bad, err, files)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Unsound(ctx, r.Store, a.ID, func() { files--; cancel() })
	if !errors.Is(err, context.Canceled) || files < 1 {
		t.Errorf("%v; %d files were not read", err, files)
	}
}

// A damaged entry is fetched again when that is asked for, and remains when it cannot be fetched.
func TestHeal(t *testing.T) {
	b := noise(1, 1<<20)
	tests := []struct {
		name   string
		serve  http.HandlerFunc
		heal   bool
		healed bool
	}{
		{"not asked for", serve(b, ""), false, false},
		{"asked for", serve(b, ""), true, true},
		{"asked for, but no server has it", status(http.StatusNotFound), true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := binary(Kubelet, b)
				r := newRig(t, nil, map[string]http.HandlerFunc{
					"upstream": sequence(serve(b, ""), tt.serve)})
				must(t, r.Run(t.Context(), []Artifact{a}))
				path := filepath.Join(r.Store, a.ID, "kubelet")
				must(t, os.WriteFile(path, []byte("evil"), 0o755))
				again := r.again()
				if tt.heal {
					again.Heal = []string{a.ID}
				}
				err := again.Run(t.Context(), []Artifact{a})
				if (err == nil) != (tt.healed || !tt.heal) {
					t.Errorf("%v", err)
				}
				if got := sound(t, r.Store, a.ID); got != tt.healed {
					t.Errorf("afterwards sound: %v", got)
				}
				if _, err := os.Lstat(path); err != nil {
					t.Errorf("there is no kubelet any more: %v", err)
				}
				if left := r.leftovers(t); len(left) > 0 {
					t.Errorf("left over: %v", left)
				}
			})
		})
	}
}

// What is to be healed but is not in the store is just fetched.
func TestHealWhatIsAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := noise(1, 1000)
		r, a := newRig(t, nil, map[string]http.HandlerFunc{"upstream": serve(b, "")}),
			binary(Runc, b)
		r.Heal = []string{a.ID}
		must(t, r.Run(t.Context(), []Artifact{a}))
		if diff := cmp.Diff([]string{"runc"}, files(t, r.Store, a.ID)); diff != "" {
			t.Error(diff)
		}
		if !sound(t, r.Store, a.ID) {
			t.Error("it is damaged")
		}
	})
}
