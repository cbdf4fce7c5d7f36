package host

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

var claimed = state.Dir{Path: "/lib/x", Mode: 0o700, Purge: true}

// claimAndFill claims the directory as it is now, fills it as a node does, and undoes that.
func claimAndFill(t *testing.T, h *Host) error {
	t.Helper()
	before := observe(t, h, claimed.Key())
	set(t, h, state.Change{From: before, To: claimed})
	write(t, h, "/lib/x/io/meta.db", "ours")
	if err := os.Chmod(h.path("/lib/x"), claimed.Mode); err != nil { // as containerd does at its start
		t.Fatal(err)
	}
	ledger := state.Ledger{}.Record(state.Plan{{From: before, To: claimed}})
	seen := state.Observed{claimed.Key(): observe(t, h, claimed.Key())}
	for _, c := range state.Diff(nil, nil, seen, ledger) {
		if err := h.Set(t.Context(), c, nil); err != nil {
			return err
		}
	}
	missing(t, h, "/lib/x/io")
	if is := observe(t, h, claimed.Key()); !state.Equal(is, before) {
		t.Errorf("it is %s, not %s", state.Show(is), state.Show(before))
	}
	return nil
}

// An empty directory of the owner gets our mode, and its own back.
func TestClaimedDirectory(t *testing.T) {
	h := testHost(t)
	mkdir(t, h, "/lib/x")
	if err := claimAndFill(t, h); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(h.path("/lib/x")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("it is %v, %v", info, err)
	}
}

// A data disk of the owner, with lost+found, is used as it is and remains (M2).
func TestMountedDirectory(t *testing.T) {
	ownMounts(t)
	h := testHost(t)
	disk(t, h, "/lib/x")
	is, _ := observe(t, h, claimed.Key()).(state.Dir)
	if !is.Mounted || !is.Empty || is.Mode != 0o711 {
		t.Errorf("the disk is observed as %+v", is)
	}
	if err := claimAndFill(t, h); err != nil {
		t.Fatal(err)
	}
	if mounted, err := isMountPoint(h.path("/lib/x")); err != nil || !mounted {
		t.Errorf("the disk was unmounted: %v", err)
	}
	if _, err := os.Stat(h.path("/lib/x/lost+found")); err != nil {
		t.Error(err)
	}
	if is = observe(t, h, claimed.Key()).(state.Dir); is.Mode != 0o711 {
		t.Errorf("the mode of the disk became %v", is.Mode)
	}
}

// A link of the owner to another disk is used as it is and remains, and so does the disk (M2).
func TestLinkedDirectory(t *testing.T) {
	for name, target := range map[string]string{"absolute": "/data/x", "relative": "../data/x"} {
		t.Run(name, func(t *testing.T) {
			ownMounts(t)
			h := testHost(t)
			if name == "absolute" { // is below the root, but only for who resolves it there
				h.Root = "/"
				target = t.TempDir() + "/x"
				claimedLink(t, h, target)
				return
			}
			disk(t, h, "/data/x")
			mkdir(t, h, "/lib")
			if err := os.Symlink(target, h.path("/lib/x")); err != nil {
				t.Fatal(err)
			}
			if err := claimAndFill(t, h); err != nil {
				t.Fatal(err)
			}
			if got, err := os.Readlink(h.path("/lib/x")); err != nil || got != target {
				t.Errorf("the link leads to %s, %v", got, err)
			}
			if _, err := os.Stat(h.path("/data/x/lost+found")); err != nil {
				t.Error(err)
			}
			if info, err := os.Stat(h.path("/data/x")); err != nil || info.Mode().Perm() != 0o711 {
				t.Errorf("the disk has mode %v, %v", info.Mode(), err)
			}
		})
	}
}

// claimedLink observes an absolute link on a machine whose root is this one's.
func claimedLink(t *testing.T, h *Host, target string) {
	t.Helper()
	path := t.TempDir() + "/link"
	if err := errors.Join(os.Mkdir(target, 0o711), os.Symlink(target, path)); err != nil {
		t.Fatal(err)
	}
	link, _ := observe(t, h, state.PathKey(path)).(state.Link)
	if link.Dir == nil || !link.Dir.Empty || link.Dir.Path != target {
		t.Errorf("the link is observed as %+v", link)
	}
}

// Below a test's root, an absolute link leads to a place below that root.
func TestLinkBelowRoot(t *testing.T) {
	h := testHost(t)
	write(t, h, "/data/x/y", "y")
	set(t, h, state.Change{To: state.Link{Path: "/l", Target: "/data/x"}})
	link, _ := observe(t, h, "path:/l").(state.Link)
	if link.Dir == nil || link.Dir.Path != "/data/x" || link.Dir.Empty {
		t.Errorf("the link is observed as %+v", link)
	}
}

// A later mount by another process is not emptied and not unmounted (M2).
func TestMountedSince(t *testing.T) {
	ownMounts(t)
	h := testHost(t)
	disk(t, h, "/lib/x")
	write(t, h, "/lib/x/data", "an admin's")
	from := observe(t, h, claimed.Key())
	for _, before := range []state.Resource{
		state.Dir{Path: claimed.Path, Mode: 0o755, Empty: true}, state.Absent{Path: claimed.Path},
	} {
		c := state.Change{From: from, To: before, Undo: true, Ours: claimed}
		err := h.Set(t.Context(), c, nil)
		if err == nil || !strings.Contains(err.Error(), "is mounted at "+h.path(claimed.Path)) {
			t.Errorf("before it was %s; the error is %v", state.Show(before), err)
		}
	}
	if _, err := os.Stat(h.path("/lib/x/data")); err != nil {
		t.Error(err)
	}
	if err := unix.Mount("more", h.path("/lib/x/lost+found"), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := h.empty("/lib/x", nil, true); err == nil || err.Error() == "" {
		t.Error("a mount below was no error")
	}
}

// A ledger remembers a link that was replaced by our directory: it comes back,
// and the directory goes with what is in it (M2).
func TestReplacedLink(t *testing.T) {
	h := testHost(t)
	write(t, h, "/lib/x/io/meta.db", "ours")
	for _, before := range []state.Resource{
		state.Link{Path: "/lib/x", Target: "/data/x"}, state.NewFile("/lib/x", 0o644, "x"),
	} {
		write(t, h, "/lib/y/z", "ours")
		set(t, h, state.Change{To: before, Undo: true, Ours: claimed})
		if err := os.Remove(h.path("/lib/x")); err != nil {
			t.Fatal(err)
		}
		write(t, h, "/lib/x/io/meta.db", "ours")
	}
}
