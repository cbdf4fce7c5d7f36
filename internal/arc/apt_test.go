package arc

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// do runs a program of this machine.
func do(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return string(out)
}

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
	dir = t.TempDir()
	const deb = "pool/azcmagent_1.62_all.deb"
	control := "Package: azcmagent\nVersion: 1.62\nArchitecture: all\n" +
		"Maintainer: x <x@example.com>\n" +
		"Description: x\n"
	put(t, filepath.Join(dir, "build/DEBIAN/control"), control)
	put(t, filepath.Join(dir, "pool/.keep"), "")
	do(t, "dpkg-deb", "--build", filepath.Join(dir, "build"), filepath.Join(dir, deb))
	data, err := os.ReadFile(filepath.Join(dir, deb))
	if err != nil {
		t.Fatal(err)
	}
	index := fmt.Sprintf("%sFilename: %s\nSize: %d\nSHA256: %x\n\n", control, deb, len(data),
		sha256.Sum256(data))
	list := "main/binary-" + runtime.GOARCH + "/Packages"
	put(t, filepath.Join(dir, "dists/stable", list), index)
	put(t, filepath.Join(dir, "Release"), fmt.Sprintf("Suite: stable\nCodename: stable\nDate: %s\n"+
		"Architectures: %s\nComponents: main\nSHA256:\n %x %d %s\n",
		time.Now().UTC().Format("Mon, 02 Jan 2006 15:04:05 UTC"), runtime.GOARCH,
		sha256.Sum256([]byte(index)), len(index), list))
	home, err := os.MkdirTemp("", "gpg-") // short: it holds the agent's socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run()
		_ = os.RemoveAll(home)
	})
	gpg := []string{"gpg", "--homedir", home, "--batch", "--quiet", "--passphrase", ""}
	do(t, append(gpg, "--quick-gen-key", "x <x@example.com>", "rsa2048", "sign", "never")...)
	do(t, append(gpg, "--output", filepath.Join(dir, "dists/stable/InRelease"), "--clearsign",
		filepath.Join(dir, "Release"))...)
	return dir, do(t, append(gpg, "--armor", "--export")...)
}

// The distribution's own apt takes what the right key has signed, and nothing else: not what
// another key has signed, nor an index or a package that somebody has changed.
func TestAptProves(t *testing.T) {
	for _, program := range []string{"apt-get", "dpkg-deb", "gpg"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not on this machine", program)
		}
	}
	spoil := func(t *testing.T, file string) {
		t.Helper()
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		put(t, file, string(data)+"\n")
	}
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, dir string, r *Repository)
		fails  string
	}{
		{"the right key", func(*testing.T, string, *Repository) {}, ""},
		{"another key", func(_ *testing.T, _ string, r *Repository) { r.Key = Key }, "update"},
		{"a changed index", func(t *testing.T, dir string, _ *Repository) {
			spoil(t, filepath.Join(dir, "dists/stable/main/binary-"+runtime.GOARCH, "Packages"))
		}, "update"},
		{"a changed package", func(t *testing.T, dir string, _ *Repository) {
			spoil(t, filepath.Join(dir, "pool/azcmagent_1.62_all.deb"))
		}, "download"},
		{"no package", func(t *testing.T, dir string, _ *Repository) {
			if err := os.RemoveAll(filepath.Join(dir, "pool")); err != nil {
				t.Fatal(err)
			}
		}, "download"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, key := repository(t)
			r := Repository{URL: "file:" + dir, Suite: "stable", Key: key}
			tt.change(t, dir, &r)
			work := t.TempDir()
			put(t, filepath.Join(work, EmptyDir, ".keep"), "")
			for name, text := range r.Files(work) {
				put(t, filepath.Join(work, name), text)
			}
			update, download := Commands(work)
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
