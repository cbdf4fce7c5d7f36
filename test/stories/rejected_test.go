package stories

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// other returns a configuration that differs from the usual one in kubelet's settings.
func (w *world) other(pods int) config.Config {
	return w.configuration(func(c map[string]any) {
		c["node"].(map[string]any)["maxPods"] = pods
	})
}

// The daemon never leaves a change half-applied after a kill, whatever the configuration file
// contains by then: the previously applied configuration, another one, a failed one, or one that
// cannot be read.
func TestHalfChanged(t *testing.T) {
	t.Parallel()
	invalid := config.Problems{{Path: "node", Message: "cannot be read"}}
	tests := []struct {
		name   string
		file   func(w *world, before, rejected config.Config)
		failed bool // the configuration in the file was rejected before
		err    error
		pods   []string
	}{
		{"as it was", func(w *world, before, _ config.Config) { w.config = before },
			false, nil, []string{"110"}},
		{"another", func(w *world, _, _ config.Config) { w.config = w.other(44) },
			false, nil, []string{"44"}},
		{"rejected", func(w *world, _, rejected config.Config) { w.config = rejected },
			true, nil, []string{"110", "42"}},
		{"unreadable", func(*world, config.Config, config.Config) {},
			false, invalid, []string{"110", "42"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for n := 6; ; n += 9 {
				w := newWorld(t)
				if _, err := w.bootstrap(); err != nil {
					t.Fatal(err)
				}
				before, rejected := w.config, w.rejects(43)
				w.config = w.other(42)
				w.blow(n)
				_, err := w.bootstrap()
				w.blow(-1)
				if err == nil {
					return
				}
				tt.file(w, before, rejected)
				err = w.daemonRuns(tt.err)
				final := change.Verdict(err).Kind == transition.Refused
				if final != (tt.failed || tt.err != nil) || !final && err != nil {
					t.Fatalf("killed at touch %d: the daemon ends with %v", n, err)
				}
				when := fmt.Sprintf("killed at touch %d", n)
				w.wholly(t, when)
				if is := maxPods(w.root); !slices.Contains(tt.pods, is) {
					t.Errorf("%s: kubelet takes %s pods, want %v", when, is, tt.pods)
				}
			}
		})
	}
}

// rejects makes a change fail and roll back, and returns its configuration.
func (w *world) rejects(pods int) config.Config {
	w.t.Helper()
	before, start := w.config, w.systemd.OnStart
	w.refuseChangedKubelet()
	failing := w.other(pods)
	w.config = failing
	if _, err := w.bootstrap(); err == nil {
		w.t.Fatal("a kubelet that does not start is committed")
	}
	w.config, w.systemd.OnStart = before, start
	return failing
}

// A rejected configuration counts as a problem of the node only as long as it is the desired one.
func TestRejectedLongAgo(t *testing.T) {
	const rejected, well = "Rejected", "AsExpected"
	tests := map[string]struct {
		cure func(w *world, before config.Config) error
	}{
		"another configuration": {func(w *world, _ config.Config) error {
			w.config = w.other(44)
			return w.daemonRuns(nil)
		}},
		"the former one to the daemon": {func(w *world, before config.Config) error {
			w.config = before
			return w.daemonRuns(nil)
		}},
		"the former one to bootstrap": {func(w *world, before config.Config) error {
			w.config = before
			_, err := w.bootstrap()
			return err
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			before, failing := w.config, w.rejects(43)
			wants := func(reason string) {
				t.Helper()
				if is := w.condition("ConfigurationAccepted").Reason; is != reason {
					t.Errorf("the condition is %s, want %s", is, reason)
				}
			}
			fails := func() {
				t.Helper()
				w.config = failing
				if change.Verdict(w.daemonRuns(nil)).Kind != transition.Refused {
					t.Error("the daemon tries a rejected configuration again")
				}
				wants(rejected)
			}
			fails()
			w.harm()
			if _, err := w.drift(true); err != nil {
				t.Fatal(err)
			}
			wants(rejected) // a repair accepts nothing
			if err := tt.cure(w, before); err != nil {
				t.Fatal(err)
			}
			wants(well)
			fails() // it is wanted again
		})
	}
}

// A machine that lost half of its memory takes the configuration with less reserved even if that
// failed at first, unless it works with the applied one.
func TestRejectedOnASmallerMachine(t *testing.T) {
	t.Parallel()
	for _, fits := range []bool{false, true} {
		w := newWorld(t)
		size := int64(16 << 30)
		w.facts = func(f *host.Facts) { f.MemoryBytes = size }
		w.config.Agent.ReadyTimeout = "20s" // of the first bootstrap, too, also on a busy machine
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		before, ready, cured := kubeletConfig(w.root), w.cluster.ready, false
		w.cluster.set(func() {
			w.cluster.ready = func(string) bool {
				works := cured
				if kubeletConfig(w.root) == before {
					works = fits
				}
				return works && ready("")
			}
		})
		size = 2 << 30
		if _, err := w.bootstrap(); err == nil || rolledBack(err) != fits {
			t.Fatalf("the error is %v", err)
		}
		w.cluster.set(func() { cured = true })
		kind := change.Verdict(w.daemonReconciles()).Kind
		if fits && kind != transition.Refused || !fits && kind != transition.Done {
			t.Errorf("fits: %t; the next run ends as %s", fits, kind)
		}
		if (kubeletConfig(w.root) == before) != fits {
			t.Errorf("fits: %t; kubelet has the other configuration", fits)
		}
	}
}

// ownDisk mounts an empty file system at a path of the machine.
func (w *world) ownDisk(path, size string) (dir string) {
	w.t.Helper()
	if os.Getuid() != 0 {
		w.t.Skip("only root can mount; make test, run as root, has it")
	}
	dir = filepath.Join(w.root, path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := unix.Mount("disk", dir, "tmpfs", 0, "mode=0755,size="+size); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// fill writes a file until its disk is full.
func (w *world) fill(file string) {
	w.t.Helper()
	f, err := os.Create(file)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		w.t.Fatal(err)
	}
}

// While kubelet's own disk is full or read-only, a change touches nothing. It is made afterwards.
func TestDiskRejectsNothing(t *testing.T) {
	for want, breaks := range map[string]func(w *world, disk string) (func() error, error){
		"DiskSpace": func(w *world, disk string) (func() error, error) {
			file := filepath.Join(disk, "full")
			w.fill(file)
			return func() error { return os.Remove(file) }, nil
		},
		"FileSystemsWritable": func(_ *world, disk string) (func() error, error) {
			err := unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
			return func() error { return unix.Mount("", disk, "", unix.MS_REMOUNT, "") }, err
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			disk := w.ownDisk("/var/lib/kubelet", "1m")
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			repair, err := breaks(w, disk)
			if err != nil {
				t.Fatal(err)
			}
			w.config = w.other(42)
			began := w.kubeletSince()
			err = w.daemonRuns(nil)
			if kind := change.Verdict(err).Kind; kind != transition.Failed ||
				!strings.Contains(err.Error(), want) || w.kubeletSince() != began {
				t.Errorf("%s: %v", kind, err)
			}
			if err := repair(); err != nil {
				t.Fatal(err)
			}
			if err := w.daemonRuns(nil); err != nil || maxPods(w.root) != "42" {
				t.Errorf("later kubelet takes %s pods: %v", maxPods(w.root), err)
			}
		})
	}
}
