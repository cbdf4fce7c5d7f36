// Package host accesses the real machine: it observes one resource and sets one resource. It is the
// only package that speaks to systemd and runs programs. It has no policy; package apply decides
// which changes are made, in which order, and what must be on disk before.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/regular"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Host is one machine. All paths are relative to Root, which is "" on a real one.
type Host struct {
	Root     string
	Systemd  Systemd
	Kernel   Kernel
	Programs Programs // runs programs of the machine; nil runs them here
	// Touch is called before every change, and done when the change has returned; an error prevents
	// the change. Tests use it to kill a run.
	Touch func(what string) (done func(), err error)
	// SecretDir holds the secrets of running programs: in memory, readable only by root. PackageDir
	// holds the packages to install, as NAME_VERSION_ARCH.deb.
	SecretDir, PackageDir string
	PackageWait           time.Duration // bounds the wait for other package managers; 0 is 5 minutes
	Beat                  func()        // called during long work; may be nil
	Log                   *slog.Logger

	// mu guards unsynced, the directories whose entries have changed since the last Flush. Flush holds
	// it throughout, so that no other returns before the directories are synced.
	mu       sync.Mutex
	unsynced map[string]bool
}

// New returns the machine that this process runs on.
func New(root string, log *slog.Logger) *Host {
	h := &Host{Root: root, Systemd: &DBus{dial: dialSystemd, uptime: uptime}, Log: log}
	h.Kernel = linux{h.beat}
	return h
}

func (h *Host) beat() {
	if h.Beat != nil {
		h.Beat()
	}
}

// Close ends the connection to systemd.
func (h *Host) Close() { h.Systemd.Close() }

// path returns the path of a file of the machine as this process sees it.
func (h *Host) path(p string) string { return filepath.Join("/", h.Root, p) }

// Touched is called before each change to this machine, also by other packages such as the store's.
func (h *Host) Touched(what string) (done func(), err error) {
	h.beat()
	if h.Touch == nil {
		return func() {}, nil
	}
	return h.Touch(what)
}

// change makes one change. Its error is "cannot" and the description.
func (h *Host) change(what string, do func() error) error {
	done, err := h.Touched(what)
	if err != nil {
		return err
	}
	defer done()
	if err := do(); err != nil {
		return fmt.Errorf("cannot %s: %w", what, unwrapPath(err))
	}
	return nil
}

// except returns err unless it is one of others.
func except(err error, others ...error) error {
	if slices.ContainsFunc(others, func(e error) bool { return errors.Is(err, e) }) {
		return nil
	}
	return err
}

// List names the entries of a directory.
func (h *Host) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(h.path(dir))
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// Observe returns the resource at key. It changes nothing.
func (h *Host) Observe(ctx context.Context, key state.Key) (state.Resource, error) {
	kind, name, _ := strings.Cut(string(key), ":")
	switch kind {
	case "path":
		return h.observePath(name)
	case "unit":
		return h.observeUnit(ctx, name)
	case "sysctl":
		return h.observeSysctl(name)
	case "module":
		return h.observeModule(name)
	case "swap":
		areas, err := h.swaps()
		return state.Swap{Areas: areas}, err
	case "residue":
		return h.observeResidue(ctx, name)
	case "opening":
		return h.observeOpening(key)
	case "table":
		rules, err := h.Kernel.Rules(name)
		return state.Table{Name: name, Rules: rules}, err
	case "package":
		return h.observePackage(ctx, name)
	}
	return nil, fmt.Errorf("internal error: cannot observe %s", key)
}

// Set changes a thing to c.To. A file's content that is not in c.To is read by its digest.
func (h *Host) Set(ctx context.Context, c state.Change, content contents) error {
	switch to := c.To.(type) {
	case state.Absent:
		return h.setAbsent(c, to)
	case state.Dir:
		return h.setDir(c, to)
	case state.File:
		return h.setFile(c, to, content)
	case state.Link:
		return h.setLink(c, to)
	case state.Unit:
		return h.setUnit(ctx, c, to)
	case state.Sysctl:
		return h.setSysctl(to)
	case state.Module:
		return h.setModule(ctx, to)
	case state.Swap:
		return h.setSwap(to)
	case state.Residue:
		return h.setResidue(ctx, c, to)
	case state.Opening:
		return h.setOpening(ctx, to)
	case state.Table:
		return h.setTable(ctx, to)
	case state.Package:
		return h.setPackage(ctx, c.From, to)
	}
	return fmt.Errorf("internal error: cannot set a %T", c.To)
}

// Reload makes systemd read its unit files again.
func (h *Host) Reload(ctx context.Context) error {
	return h.change("reload systemd", func() error { return h.Systemd.Reload(ctx) })
}

// Flush syncs every directory entry that Set has changed to disk. Directories that cannot be synced
// are left to the next Flush.
func (h *Host) Flush() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for dir := range h.unsynced {
		err := except(syncDir(dir), fs.ErrNotExist)
		if err == nil {
			delete(h.unsynced, dir)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (h *Host) changed(dir string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unsynced == nil {
		h.unsynced = make(map[string]bool)
	}
	h.unsynced[dir] = true
}

// exists reports whether a path exists, following links.
func (h *Host) exists(path string) bool {
	_, err := os.Stat(h.path(path))
	return err == nil
}

// text returns the content of the first file that exists, without white space around it.
func (h *Host) text(paths ...string) string {
	for _, path := range paths {
		if text, err := h.ReadFile(path); err == nil {
			return strings.TrimSpace(strings.TrimRight(string(text), "\x00"))
		}
	}
	return ""
}

// settings returns the lines "key=value" of the first file that exists, without quotes.
func (h *Host) settings(paths ...string) map[string]string {
	list := make(map[string]string)
	for line := range strings.Lines(h.text(paths...)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			list[key] = strings.Trim(value, `"'`)
		}
	}
	return list
}

func (h *Host) rows(path string) ([][]string, error) {
	text, err := h.ReadFile(path)
	var rows [][]string
	for line := range strings.Lines(string(text)) {
		rows = append(rows, strings.Fields(line))
	}
	return rows, err
}

// ReadFile reads a regular file of the machine.
func (h *Host) ReadFile(path string) ([]byte, error) { return regular.ReadFile(h.path(path)) }

// Open opens a regular file of the machine for reading.
func (h *Host) Open(path string) (io.ReadCloser, error) {
	f, _, err := regular.Open(h.path(path))
	return f, err
}
