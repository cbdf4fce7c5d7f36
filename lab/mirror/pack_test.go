package mirror

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/lab/component"
)

// version is a release without pins in the agent, so that it must fetch checksums.
const version = "9.8.7"

// programs returns a component as component.Builder would: small files, each with its own
// incompressible content.
func programs(t *testing.T, name string, mtime time.Time) (component.Component, string) {
	t.Helper()
	files := map[string][]string{
		component.KubernetesNode: {"kubelet", "kubectl", "kubeadm"},
		component.Containerd:     {"containerd", "ctr", "containerd-shim-runc-v2"},
		component.Runc:           {"runc"},
		component.CNIPlugins:     cniFiles(),
		component.NodeProblemDetector: {
			"node-problem-detector", "kernel-monitor.json", "readonly-monitor.json", "systemd-monitor.json",
		},
	}
	dir := filepath.Join(t.TempDir(), name+"-"+version+"-0123456789ab")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range files[name] {
		mode := os.FileMode(0o755)
		if filepath.Ext(f) == ".json" || f == "LICENSE" {
			mode = 0o644
		}
		path := filepath.Join(dir, f)
		if err := os.WriteFile(path, random(t, f, 40_000), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, mtime, mtime); err != nil {
			t.Fatal(err)
		}
	}
	return component.Component{Name: name, Version: version}, dir
}

func random(t *testing.T, seed string, size int) []byte {
	t.Helper()
	text := make([]byte, size)
	if _, err := rand.NewChaCha8(sha256.Sum256([]byte(seed))).Read(text); err != nil {
		t.Fatal(err)
	}
	return text
}

// packed returns the catalog of every component.
func packed(t *testing.T, mtime time.Time) Catalog {
	t.Helper()
	cache := t.TempDir()
	var list []Catalog
	for _, name := range []string{
		component.KubernetesNode, component.Containerd, component.Runc, component.CNIPlugins,
		component.NodeProblemDetector, component.Etcd,
	} {
		c, dir := programs(t, name, mtime)
		catalog, err := Pack(t.Context(), cache, c, dir)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Pack(t.Context(), cache, c, filepath.Join(t.TempDir(), filepath.Base(dir)))
		if err != nil {
			t.Fatalf("%s was packed twice: %v", name, err)
		}
		if diff := cmp.Diff(catalog, again); diff != "" {
			t.Errorf("%s, again from the cache: %s", name, diff)
		}
		list = append(list, catalog)
	}
	return Merge(list...)
}

func TestPackIsDeterministic(t *testing.T) {
	one, two := packed(t, time.Unix(1, 0)), packed(t, time.Unix(1e9, 0))
	if len(one.Artifacts) != 7 {
		t.Errorf("there are %d artifacts, want 7", len(one.Artifacts))
	}
	local := func(p cmp.Path) bool { return p.Last().String() == ".Local" }
	withoutPlace := cmp.FilterPath(local, cmp.Ignore())
	if diff := cmp.Diff(one, two, withoutPlace); diff != "" {
		t.Error(diff)
	}
}

func TestCatalogTellsTheTruth(t *testing.T) {
	c := packed(t, time.Unix(1, 0))
	for path, f := range c.Files {
		text := read(t, f.Local)
		if int64(len(text)) != f.Size || digest(text) != f.SHA256 {
			t.Errorf("%s is not %d bytes with digest %s", path, f.Size, f.SHA256)
		}
	}
	for _, a := range c.Artifacts {
		f, ok := c.Files[a.Path]
		if !ok || f.Size != a.Size || f.SHA256 != a.SHA256 || a.Version != version ||
			a.Arch != runtime.GOARCH {
			t.Errorf("artifact and file differ: %+v, %+v", a, f)
		}
	}
}

func TestArchives(t *testing.T) {
	c := packed(t, time.Unix(1, 0))
	tests := map[string]struct {
		first []string
		path  string
	}{
		"containerd": {
			[]string{"bin/", "bin/containerd", "bin/containerd-shim-runc-v2", "bin/ctr"}, ".tar.gz",
		},
		"cni-plugins": {[]string{"./", "./LICENSE", "./bandwidth", "./bridge"}, ".tgz"},
		"node-problem-detector": {
			[]string{
				"bin/", "bin/node-problem-detector", "config/", "config/kernel-monitor.json",
			}, ".tar.gz",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a, err := c.Artifact(name, version)
			if err != nil {
				t.Fatal(err)
			}
			z, err := gzip.NewReader(bytes.NewReader(read(t, c.Files[a.Path].Local)))
			if err != nil {
				t.Fatal(err)
			}
			tarball, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
			if digest(tarball) != a.TarSHA256 {
				t.Error("the tar has another digest")
			}
			variant, ok := c.Files[a.Path[:len(a.Path)-len(test.path)]+".tar.zst"]
			if !ok || variant.Size != a.Compressed {
				t.Fatalf("there is no zstd variant of %d bytes", a.Compressed)
			}
			if !bytes.Equal(unzstd(t, read(t, variant.Local)), tarball) {
				t.Error("the zstd variant holds another tar")
			}
			if diff := cmp.Diff(test.first, entries(t, tarball)[:len(test.first)]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// entries checks that an archive does not depend on the host, and returns its names.
func entries(t *testing.T, tarball []byte) []string {
	t.Helper()
	var names []string
	for r := tar.NewReader(bytes.NewReader(tarball)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 0 {
			t.Errorf("%s carries the host: %+v", h.Name, h)
		}
		want := int64(0o755)
		if base := filepath.Base(h.Name); filepath.Ext(base) == ".json" || base == "LICENSE" {
			want = 0o644
		}
		if h.Mode != want {
			t.Errorf("%s has mode %o, want %o", h.Name, h.Mode, want)
		}
	}
}

func TestOverrides(t *testing.T) {
	c := Catalog{Artifacts: []Artifact{
		{Name: "containerd", Version: "2.1.6", SHA256: "aa", TarSHA256: "ab", Size: 1},
		{Name: "containerd", Version: "2.2.1", SHA256: "ba", TarSHA256: "bb", Size: 2},
		{Name: "kubelet", Version: "2.2.1", SHA256: "ca", Size: 3},
	}}
	got, err := c.Overrides(map[string]string{"containerd": "2.2.1", "kubelet": "2.2.1"})
	want := map[string]config.Override{
		"containerd": {SHA256: "ba", TarSHA256: "bb", Size: 2}, "kubelet": {SHA256: "ca", Size: 3},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	_, err = c.Overrides(map[string]string{"containerd": "1.0.0"})
	if err == nil || !strings.Contains(err.Error(), `["2.1.6" "2.2.1"]`) {
		t.Errorf("error is %v", err)
	}
}

func TestDirectoryKeepsWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := (Catalog{}).Directory(t.Context(), dir); err == nil {
		t.Error("it copied into a directory that is not empty")
	}
}

func TestPackIsCancelled(t *testing.T) {
	c, dir := programs(t, component.Runc, time.Unix(1, 0))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cache := t.TempDir()
	if _, err := Pack(ctx, cache, c, dir); err == nil {
		t.Error("no error")
	}
	left, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range left {
		if filepath.Ext(path) != ".lock" {
			t.Errorf("%s was left behind", path)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func unzstd(t *testing.T, packed []byte) []byte {
	t.Helper()
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	text, err := z.DecodeAll(packed, nil)
	if err != nil {
		t.Fatal(fmt.Errorf("cannot decompress: %w", err))
	}
	return text
}
