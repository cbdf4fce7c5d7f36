package arc

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/distro"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// repository makes a signed repository with one package, and returns its directory and its key.
func repository(t *testing.T) (dir, key string) {
	t.Helper()
	work := t.TempDir()
	put(t, filepath.Join(work, "build/DEBIAN/control"), "Package: azcmagent\nVersion: 1.62\n"+
		"Architecture: all\nMaintainer: x <x@example.com>\nDescription: x\n")
	deb := filepath.Join(work, "azcmagent_1.62_all.deb")
	build := exec.CommandContext(t.Context(), "dpkg-deb", "--build", filepath.Join(work, "build"), deb)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v\n%s", err, out)
	}
	home, err := os.MkdirTemp("", "gpg-") // short: it holds the agent's socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	dir = filepath.Join(work, "repository")
	publish := exec.CommandContext(t.Context(), "go", "run", "-C", "../../packaging", "./release",
		"repository", "--home", filepath.Join(home, "k"), "--packages", work, "--repository", dir,
		"--architectures", runtime.GOARCH)
	if out, err := publish.CombinedOutput(); err != nil {
		t.Fatalf("cannot make a repository: %v\n%s", err, out)
	}
	public, err := os.ReadFile(filepath.Join(dir, "key.asc"))
	if err != nil {
		t.Fatal(err)
	}
	return dir, string(public)
}

// The distribution's own apt takes what the right key has signed, and nothing else: not what
// another key has signed, nor an index or a package that was changed.
func TestAptProves(t *testing.T) {
	for _, program := range []string{"apt-get", "dpkg-deb", "gpg"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not on this machine", program)
		}
	}
	spoil := func(t *testing.T, pattern string) {
		t.Helper()
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("there is no %s: %v", pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			put(t, file, string(data)+"\n")
		}
	}
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, dir string, r *distro.Source)
		fails  string
	}{
		{"the right key", func(*testing.T, string, *distro.Source) {}, ""},
		{"another key", func(_ *testing.T, _ string, r *distro.Source) { r.Key = Key }, "update"},
		{"a changed index", func(t *testing.T, dir string, _ *distro.Source) {
			list := filepath.Join(dir, "dists/stable/main/binary-"+runtime.GOARCH)
			spoil(t, filepath.Join(list, "Packages*"))
			spoil(t, filepath.Join(list, "by-hash/SHA256/*"))
		}, "update"},
		{"a changed package", func(t *testing.T, dir string, _ *distro.Source) {
			spoil(t, filepath.Join(dir, "pool/main/a/azcmagent/*.deb"))
		}, "download"},
		{"no package", func(t *testing.T, dir string, _ *distro.Source) {
			if err := os.RemoveAll(filepath.Join(dir, "pool")); err != nil {
				t.Fatal(err)
			}
		}, "download"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, key := repository(t)
			r := distro.Source{Package: Package, URL: "file:" + dir, Suite: "stable", Key: key}
			tt.change(t, dir, &r)
			work := t.TempDir()
			put(t, filepath.Join(work, distro.EmptyDir, ".keep"), "")
			for name, text := range r.Files(work) {
				put(t, filepath.Join(work, name), text)
			}
			update, download := r.Commands(work)
			failed, words := "", ""
			for _, argv := range [][]string{update, download} {
				out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
				if err != nil {
					failed, words = argv[5], string(out)
					break
				}
			}
			if failed != tt.fails {
				t.Errorf("%q fails, want %q: %s", failed, tt.fails, words)
			}
			found, err := filepath.Glob(filepath.Join(work, "azcmagent_*.deb"))
			if err != nil || (len(found) == 1) != (tt.fails == "") {
				t.Errorf("fetched %q, %v", found, err)
			}
		})
	}
}
