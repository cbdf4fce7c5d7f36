package host

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Whatever a tree contains, and wherever its links point, a purge removes it and nothing else.
func TestPurgeStaysInside(t *testing.T) {
	for seed := range uint64(50) {
		h := testHost(t)
		random := rand.New(rand.NewPCG(seed, 1))
		outside := filepath.Join(h.Root, "outside")
		for _, dir := range []string{outside, filepath.Join(h.Root, "tree")} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		precious := filepath.Join(outside, "precious")
		if err := os.WriteFile(precious, []byte("foreign"), 0o644); err != nil {
			t.Fatal(err)
		}
		grow(t, random, filepath.Join(h.Root, "tree"), outside, 4)
		if err := h.purge("/tree", nil); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if _, err := os.Lstat(filepath.Join(h.Root, "tree")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("seed %d: the tree is still there: %v", seed, err)
		}
		if data, err := os.ReadFile(precious); err != nil || string(data) != "foreign" {
			t.Errorf("seed %d: what lies outside was touched: %v", seed, err)
		}
	}
}

// A purge counts as progress while it goes on.
func TestPurgeBeats(t *testing.T) {
	h := testHost(t)
	beats := 0
	h.Beat = func() { beats++ }
	for i := range 1000 {
		write(t, h, fmt.Sprintf("/tree/%d/file", i), "")
	}
	if err := h.purge("/tree", nil); err != nil || beats < 10 {
		t.Errorf("%d beats, %v", beats, err)
	}
}

// grow makes a random tree with files, directories, and links to places outside.
func grow(t *testing.T, random *rand.Rand, dir, outside string, depth int) {
	t.Helper()
	for i := range random.IntN(5) {
		path := filepath.Join(dir, fmt.Sprintf("n%d", i))
		var err error
		switch random.IntN(4) {
		case 0:
			err = os.WriteFile(path, []byte("x"), 0o400)
		case 1:
			err = os.Symlink(outside, path)
		case 2:
			err = os.Symlink("../../outside/precious", path)
		default:
			err = os.Mkdir(path, 0o700)
			if err == nil && depth > 0 {
				grow(t, random, path, outside, depth-1)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Keeping the directory empties it and leaves it.
func TestPurgeKeeps(t *testing.T) {
	h := testHost(t)
	if err := os.MkdirAll(filepath.Join(h.Root, "tree/a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := h.empty("/tree", nil, false); err != nil {
		t.Fatal(err)
	}
	if empty, err := isEmpty(filepath.Join(h.Root, "tree")); err != nil || !empty {
		t.Errorf("the directory is not empty: %v", err)
	}
}

// File systems behind a network or a process are detached: one that does not answer blocks nothing.
// A disk is unmounted, so that all is on it when the purge ends.
func TestDetachable(t *testing.T) {
	for fs, want := range map[string]bool{
		"nfs": true, "nfs4": true, "cifs": true, "smb3": true, "ceph": true, "9p": true, "fuse": true,
		"fuse.blobfuse2": true, "fuse.glusterfs": true,
		"ext4": false, "xfs": false, "tmpfs": false, "overlay": false, "fuseblk": false, "": false,
	} {
		flags := unmountFlags(fs)
		if flags&unix.UMOUNT_NOFOLLOW == 0 || (flags&unix.MNT_DETACH != 0) != want {
			t.Errorf("%q is unmounted with flags %#x", fs, flags)
		}
	}
}

// Mounts at expected places are unmounted; any other stops the purge before anything is deleted.
func TestPurgeMounts(t *testing.T) {
	ownMounts(t)
	h := testHost(t)
	for _, dir := range []string{"tree/pods/p1/volume", "tree/foreign", "precious"} {
		if err := os.MkdirAll(filepath.Join(h.Root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(h.Root, "precious/data")
	if err := os.WriteFile(data, []byte("foreign"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"tree/pods/p1/volume", "tree/foreign"} {
		from, to := filepath.Join(h.Root, "precious"), filepath.Join(h.Root, at)
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	err := h.purge("/tree", []string{"pods"})
	if err == nil || !strings.Contains(err.Error(), "is mounted at "+h.path("/tree/foreign")) {
		t.Fatalf("the error is %v; want the foreign mount", err)
	}
	if _, err := os.ReadFile(filepath.Join(h.Root, "tree/pods/p1/volume/data")); err != nil {
		t.Errorf("something was unmounted or deleted although the purge was stopped: %v", err)
	}
	if err := unix.Unmount(filepath.Join(h.Root, "tree/foreign"), 0); err != nil {
		t.Fatal(err)
	}
	if err := h.purge("/tree", []string{"pods"}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(data); err != nil || string(text) != "foreign" {
		t.Errorf("what was mounted is gone: %v", err)
	}
}

// Mounts come in the order in which they can be unmounted, and a name that only begins alike is not
// below.
func TestUnder(t *testing.T) {
	over := &mountinfo.Info{Mountpoint: "/a/b", Source: "over it"}
	list := []*mountinfo.Info{
		{Mountpoint: "/a"}, {Mountpoint: "/a/b"}, {Mountpoint: "/ab"}, {Mountpoint: "/a/b/c"}, over,
	}
	got := under(list, "/a")
	want := []*mountinfo.Info{{Mountpoint: "/a/b/c"}, over, {Mountpoint: "/a/b"}, {Mountpoint: "/a"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
