package artifact

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// populate makes files (content "x") and, for names that end in a slash, directories.
func populate(t testing.TB, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		path := filepath.Join(dir, n)
		if strings.HasSuffix(n, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func listing(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// files lists the files of an entry but its manifest.
func files(t testing.TB, store, id string) []string {
	t.Helper()
	m, err := list(openRoot(t, filepath.Join(store, id)), quietly)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(m))
}

func TestCollect(t *testing.T) {
	keep, coming, old := sha([]byte("keep")), sha([]byte("coming")), sha([]byte("old"))
	long := strings.Repeat("0", 128)
	store, elsewhere := t.TempDir(), t.TempDir()
	populate(t, elsewhere, "precious/file")
	populate(t, store,
		keep+"/kubelet", old+"/bin/deep/containerd", old+"/empty/", long+"/npd",
		partialPrefix+keep+"-1/half", partialPrefix+old+"-2/half",
		keptPrefix+keep, keptPrefix+coming, keptPrefix+coming+".zst", keptPrefix+old,
		keptPrefix+old+".zst",
		"foreign/file", "README", keptPrefix+"notes", partialPrefix+"notes/",
	)
	link := sha([]byte("link"))
	for _, name := range []string{link, old + "/link"} {
		if err := os.Symlink(filepath.Join(elsewhere, "precious"),
			filepath.Join(store, name)); err != nil {
			t.Fatal(err)
		}
	}
	before := listing(t, store)
	if err := Collect(store, []string{keep, coming}, nil); err != nil {
		t.Fatal(err)
	}
	left := listing(t, store)
	removed := slices.DeleteFunc(before, func(name string) bool {
		return slices.Contains(left, name)
	})
	want := []string{old, long, link, partialPrefix + keep + "-1", partialPrefix + old + "-2",
		keptPrefix + keep, keptPrefix + old, keptPrefix + old + ".zst"}
	slices.Sort(want)
	slices.Sort(removed)
	if diff := cmp.Diff(want, removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	stay := []string{keep, keptPrefix + coming, keptPrefix + coming + ".zst", "foreign", "README",
		keptPrefix + "notes", partialPrefix + "notes"}
	slices.Sort(stay)
	if diff := cmp.Diff(stay, listing(t, store)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(elsewhere, "precious", "file")); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
	if err := Collect(filepath.Join(store, "nowhere"), nil, nil); err == nil {
		t.Error("no error for a store that is not there")
	}
}

// mount mounts for the time of the test, or skips it.
func mount(t *testing.T, source, target, kind string, flags uintptr, data string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount; make test, run as root, has it")
	}
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(target, unix.MNT_DETACH) })
}

func TestCollectEntersNoMount(t *testing.T) {
	store, elsewhere := t.TempDir(), t.TempDir()
	one, two := sha([]byte("one")), sha([]byte("two"))
	populate(t, elsewhere, "precious/file")
	populate(t, store, one+"/bound/", one+"/plain", two+"/plain")
	mount(t, elsewhere, filepath.Join(store, one, "bound"), "", unix.MS_BIND, "")
	moved := filepath.Join(store, partialPrefix+one+"-discarded", "bound")
	t.Cleanup(func() { unix.Unmount(moved, unix.MNT_DETACH) })
	err := Collect(store, nil, nil)
	if err == nil || !strings.Contains(err.Error(), moved+": something is mounted there") {
		t.Errorf("got error %v", err)
	}
	left := []string{partialPrefix + one + "-discarded"}
	if diff := cmp.Diff(left, listing(t, store)); diff != "" {
		t.Errorf("left: %s", diff)
	}
	if _, err := os.Stat(filepath.Join(elsewhere, "precious", "file")); err != nil {
		t.Errorf("the mount was entered: %v", err)
	}
}

func TestDiskFull(t *testing.T) {
	b := noise(1, 2<<20)
	arc, targz, plain := archive(t)
	mirror := paths(map[string]http.HandlerFunc{"kubelet": serve(b, ""),
		"containerd.tar.zst": serve(zst(plain), "")})
	arc.Size = int64(len(targz))
	kubelet := binary(Kubelet, b)
	kubelet.Size = int64(len(b))
	tests := []struct {
		name string
		art  Artifact
		size string
		url  string
	}{
		{"while it is kept", kubelet, "size=1m",
			"https://mirror/base/upstream/v1.2.3/kubelet"},
		{"while it is unpacked", arc, "size=512k",
			"https://mirror/base/upstream/v1.2.3/containerd.tar.zst"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store := t.TempDir()
			mount(t, "tmpfs", store, "tmpfs", 0, tt.size)
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, mirrors, map[string]http.HandlerFunc{"mirror": mirror,
					"upstream": paths(map[string]http.HandlerFunc{
						"kubelet": serve(b, ""), "containerd.tar.gz": serve(targz, ""),
					})})
				r.Store = store
				err := r.Run(t.Context(), []Artifact{tt.art})
				e := new(Error)
				if !errors.As(err, &e) || e.Cause != DiskFull || !errors.Is(err, unix.ENOSPC) ||
					e.URL != tt.url {
					t.Fatalf("got %v", err)
				}
				if !strings.Contains(err.Error(), "no space left on device; free some space") ||
					strings.Contains(err.Error(), "\n") {
					t.Errorf("unclear: %v", err)
				}
				if present(store, tt.art.ID) {
					t.Error("there is an entry")
				}
				unix.Mount("", store, "", unix.MS_REMOUNT, "size=8m")
				before := len(r.net.requests())
				if err := r.again().Run(t.Context(), []Artifact{tt.art}); err != nil {
					t.Fatalf("with space again: %v", err)
				}
				for _, req := range r.net.requests()[before:] {
					if !strings.Contains(req, "bytes=") && !strings.HasSuffix(req, "kubelet.zst ") {
						t.Errorf("it restarted: %s", req)
					}
				}
			})
		})
	}
}

func TestReadOnlyStore(t *testing.T) {
	store := t.TempDir()
	mount(t, "tmpfs", store, "tmpfs", unix.MS_RDONLY, "")
	synctest.Test(t, func(t *testing.T) {
		b := noise(1, 1000)
		r := newRig(t, nil, map[string]http.HandlerFunc{"upstream": serve(b, "")})
		r.Store = store
		e := new(Error)
		if err := r.Run(t.Context(), []Artifact{binary(Kubelet, b)}); !errors.As(err, &e) ||
			e.Cause != ReadOnly || len(r.net.requests()) != 0 {
			t.Errorf("got %v after %d requests", err, len(r.net.requests()))
		}
	})
}

func TestStoreMustExist(t *testing.T) {
	f := &Fetcher{Store: filepath.Join(t.TempDir(), "store"),
		Artifacts: []Artifact{binary(Kubelet, nil)}}
	err := run(t.Context(), f)
	if err == nil || !strings.Contains(err.Error(), "no artifact store found at "+f.Store) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(f.Store); err == nil {
		t.Error("the store was made in passing")
	}
}

func TestEntryOfAnotherRunIsAccepted(t *testing.T) {
	b := noise(1, 1000)
	f, a := Fetcher{Store: t.TempDir()}, binary(Kubelet, b)
	err := f.build(a, func(tree) error {
		populate(t, f.Store, a.ID+"/kubelet")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if files := files(t, f.Store, a.ID); len(files) != 1 {
		t.Errorf("the entry was replaced: it has %v", files)
	}
	if got := Missing(f.Store, []Artifact{a, binary(Runc, noise(2, 10))}); len(got) != 1 ||
		got[0].Name != Runc {
		t.Errorf("missing: %v", got)
	}
}

func TestKeeperTellsDiskFromNetwork(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	src := &stream{total: -1, most: 10, r: io.TeeReader(zeros(10), &diskWriter{f: full})}
	if _, err := src.Read(make([]byte, 10)); !isLocal(err) || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if _, err := (&diskWriter{f: full}).Write([]byte("x")); !isLocal(err) {
		t.Errorf("got %v", err)
	}
}
