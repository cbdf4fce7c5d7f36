package host

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

func testHost(t *testing.T) *Host {
	t.Helper()
	return &Host{
		Root: t.TempDir(), Log: slog.New(slog.DiscardHandler),
		Systemd: &units{known: map[string]UnitStatus{}}, Kernel: &kernel{},
	}
}

// ownMounts gives the test a mount namespace of its own, so that no mount is seen outside. Its
// thread ends with it.
func ownMounts(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount; make test, run as root, has it")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
}

// disk mounts an empty file system at a path of the machine.
func disk(t *testing.T, h *Host, path string) {
	t.Helper()
	mkdir(t, h, path)
	if err := unix.Mount("disk", h.path(path), "tmpfs", 0, "mode=0711"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(h.path(path), unix.MNT_DETACH) })
	mkdir(t, h, filepath.Join(path, lostAndFound))
}

func mkdir(t *testing.T, h *Host, path string) {
	t.Helper()
	if err := os.MkdirAll(h.path(path), 0o755); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, h *Host, path, text string) {
	t.Helper()
	mkdir(t, h, filepath.Dir(path))
	if err := os.WriteFile(h.path(path), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func observe(t *testing.T, h *Host, key state.Key) state.Resource {
	t.Helper()
	r, err := h.Observe(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// set makes one change and wants it to have taken.
func set(t *testing.T, h *Host, c state.Change) {
	t.Helper()
	if c.From == nil {
		c.From = observe(t, h, c.To.Key())
	}
	if err := h.Set(t.Context(), c, nil); err != nil {
		t.Fatal(err)
	}
	if is := observe(t, h, c.To.Key()); !state.Satisfies(is, c.To) {
		t.Fatalf("it is %s, not %s", state.Show(is), state.Show(c.To))
	}
}

func missing(t *testing.T, h *Host, path string) {
	t.Helper()
	if _, err := os.Lstat(h.path(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there: %v", path, err)
	}
}

// units is a systemd that carries out each request at once.
type units struct {
	known  map[string]UnitStatus
	done   []string
	broken error
}

func (u *units) Do(_ context.Context, verb Verb, name string) error {
	u.done = append(u.done, string(verb)+" "+name)
	is := u.known[name]
	switch verb {
	case Start, Restart:
		is.Active = "active"
	case Stop:
		is.Active = "inactive"
	case Enable:
		is.File = "enabled"
	case Disable, Unmask:
		is.File = "disabled"
	case Mask:
		is.File = "masked"
	}
	u.known[name] = is
	return u.broken
}

func (u *units) Unit(_ context.Context, name string, _ bool) (UnitStatus, error) {
	return u.known[name], u.broken
}

func (u *units) Fragments(_ context.Context, names []string) (map[string]string, error) {
	files := make(map[string]string)
	for _, name := range names {
		if is, ok := u.known[name]; ok && is.Path != "" {
			files[name] = is.Path
		}
	}
	return files, u.broken
}

func (u *units) Reload(context.Context) error {
	u.done = append(u.done, "reload")
	return u.broken
}

func (u *units) Units(_ context.Context, pattern string) ([]string, error) {
	var names []string
	for name := range u.known {
		if ok, _ := filepath.Match(pattern, name); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, u.broken
}

func (u *units) Close() {}

// kernel is a kernel that carries out each request at once.
type kernel struct {
	done   []string
	found  []string
	broken error
	// unsynchronized reports that no service has told it that its clock is right.
	unsynchronized bool
	// filters are the chains of nf_tables.
	filters []Filter
	// rules is the number of rules of a table of ours.
	rules int
	reads time.Duration // the time that an area of swap takes to be turned off
}

func (k *kernel) Filters() ([]Filter, error) { return k.filters, k.broken }

func (k *kernel) ClockSynchronized() (bool, error) { return !k.unsynchronized, k.broken }

func (k *kernel) Rules(string) (int, error) { return k.rules, k.broken }

func (k *kernel) DialFrom(context.Context, string, netip.AddrPort) error { return k.broken }

func (k *kernel) LoadTable(_ context.Context, to state.Table) error {
	k.rules = to.Rules
	return k.broken
}

func (k *kernel) LoadModule(_ context.Context, name string) error {
	k.done = append(k.done, "load "+name)
	return k.broken
}

func (k *kernel) UnloadModule(name string) error {
	k.done = append(k.done, "unload "+name)
	return k.broken
}

func (k *kernel) SwapOff(_ context.Context, name string) error {
	time.Sleep(k.reads)
	k.done = append(k.done, "swapoff "+name)
	return k.broken
}

func (k *kernel) SwapOn(name string, _ int) error {
	k.done = append(k.done, "swapon "+name)
	return k.broken
}

func (k *kernel) Find(context.Context, state.Residue) ([]string, error) {
	return slices.Clone(k.found), k.broken
}

func (k *kernel) Clear(_ context.Context, _ state.Residue, found []string) error {
	for _, f := range found {
		k.done = append(k.done, "clear "+f)
	}
	return nil
}
