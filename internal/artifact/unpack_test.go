package artifact

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hostile are archives that must be refused, with a part of the reason.
func hostile(t testing.TB) map[string]struct{ tar, reason string } {
	one := func(files ...file) string { return string(makeTar(t, files)) }
	dir := file{name: "d/", mode: 0o755, kind: tar.TypeDir}
	big := file{name: "big", body: strings.Repeat("x", 4000)}
	bigger := file{name: "bigger", body: strings.Repeat("x", 4000)}
	var deep []file
	for i := range 50 {
		deep = append(deep, file{name: fmt.Sprint(i) + strings.Repeat("/d", 220)})
	}
	return map[string]struct{ tar, reason string }{
		"absolute name":        {one(file{name: "/etc/passwd", body: "x"}), "leaves the archive"},
		"parent":               {one(file{name: "../x", body: "x"}), "leaves the archive"},
		"parent in the middle": {one(file{name: "a/../../x", body: "x"}), "leaves the archive"},
		"parent directory":     {one(file{name: "a/..", kind: tar.TypeDir}), "leaves the archive"},
		"backslash":            {one(file{name: `..\x`, body: "x"}), "leaves the archive"},
		"manifest":             {one(file{name: "./.manifest", body: "x"}), "reserved for the store"},
		"root as a file":       {one(file{name: ".", body: "x"}), "no name"},
		"symlink out": {one(file{name: "l", kind: tar.TypeSymlink, link: "/etc"}),
			"neither"},
		"symlink in": {one(file{name: "l", kind: tar.TypeSymlink, link: "x"}),
			"neither"},
		"hard link": {one(file{name: "a", body: "x"},
			file{name: "l", kind: tar.TypeLink, link: "a"}), "neither"},
		"device": {one(file{name: "d", kind: tar.TypeBlock}), "neither"},
		"fifo":   {one(file{name: "d", kind: tar.TypeFifo}), "neither"},
		"twice": {one(file{name: "a", body: "x"}, file{name: "./a", body: "y"}),
			"twice"},
		"file in a file": {one(file{name: "a", body: "x"}, file{name: "a/b", body: "y"}),
			"both a file and a directory"},
		"directory over a file": {one(file{name: "a", body: "x"},
			file{name: "a", kind: tar.TypeDir}), "both a file and a directory"},
		"file over a directory": {one(file{name: "a", kind: tar.TypeDir},
			file{name: "a", body: "y"}), "twice"},
		"one huge file":    {one(file{name: "a", size: 8001}), "too large"},
		"many large files": {one(big, bigger, file{name: "c", body: "x"}), "too large"},
		"many entries":     {one(slices.Repeat([]file{dir}, maxEntries+1)...), "entries"},
		"long name":        {one(file{name: strings.Repeat("x/", 300) + "x"}), "601 bytes"},
		"many directories": {one(deep...), "entries"},
		"truncated": {one(file{name: "a", body: strings.Repeat("x", 5000)})[:2000],
			"unexpected EOF"},
		"no archive": {string(noise(1, 2000)), "invalid"},
	}
}

func TestUntarRefuses(t *testing.T) {
	for name, tt := range hostile(t) {
		t.Run(name, func(t *testing.T) {
			outer := t.TempDir()
			if err := untarBelow(t, outer, []byte(tt.tar)); err == nil ||
				!strings.Contains(err.Error(), tt.reason) {
				t.Errorf("got %v, want %q", err, tt.reason)
			}
			checkTree(t, outer)
		})
	}
}

func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestUntarSetsModes(t *testing.T) {
	outer := t.TempDir()
	err := untarBelow(t, outer, makeTar(t, []file{
		{name: "/tmp/GlobalHead.7.1", kind: tar.TypeXGlobalHeader},
		{name: "./", mode: 0o777, kind: tar.TypeDir},
		{name: "./bin/", mode: 0o7777, kind: tar.TypeDir},
		{name: "./bin/setuid", mode: 0o6755, body: "x"},
		{name: "deep/er/file", mode: 0o666, body: "y"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]fs.FileMode{}
	root := filepath.Join(outer, "root")
	filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		info, _ := e.Info()
		got[strings.TrimPrefix(path, root)] = info.Mode()
		return err
	})
	delete(got, "")
	want := map[string]fs.FileMode{
		"/bin": fs.ModeDir | 0o755, "/bin/setuid": 0o755, "/deep": fs.ModeDir | 0o755,
		"/deep/er": fs.ModeDir | 0o755, "/deep/er/file": 0o644,
	}
	for name, mode := range want {
		if got[name] != mode {
			t.Errorf("%s has mode %v, want %v", name, got[name], mode)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
}

func TestBombIsCapped(t *testing.T) {
	l := &limited{r: zeros(100), left: 99}
	_, err := io.Copy(io.Discard, l)
	if e, ok := err.(*Error); !ok || e.Cause != TooLarge {
		t.Errorf("got %v", err)
	}
	if n, err := io.Copy(io.Discard, &limited{r: zeros(100), left: 100}); n != 100 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}

func openRoot(t testing.TB, dir string) *os.Root {
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// untarBelow unpacks into outer/root, beside a neighbour that must stay as it is.
func untarBelow(t testing.TB, outer string, archive []byte) error {
	dir := filepath.Join(outer, "root")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outer, "x"), []byte("neighbour"), 0o600); err != nil {
		t.Fatal(err)
	}
	return untar(tree{Root: openRoot(t, dir)}, bytes.NewReader(archive), 8000)
}

// checkTree checks that nothing left the root and that in it are only files and directories of the
// two modes.
func checkTree(t testing.TB, outer string) {
	t.Helper()
	entries, _ := os.ReadDir(outer)
	if b, _ := os.ReadFile(filepath.Join(outer, "x")); len(entries) != 2 ||
		string(b) != "neighbour" {
		t.Errorf("the surroundings changed: %v, %q", entries, b)
	}
	filepath.WalkDir(filepath.Join(outer, "root"),
		func(path string, e fs.DirEntry, err error) error {
			info, ierr := e.Info()
			if err != nil || ierr != nil {
				t.Errorf("%s: %v %v", path, err, ierr)
				return err
			}
			switch info.Mode() {
			case 0o644, 0o755, 0o600, fs.ModeDir | 0o755:
			default:
				t.Errorf("%s has mode %v", path, info.Mode())
			}
			return nil
		})
}

func FuzzUnpack(f *testing.F) {
	for _, tt := range hostile(f) {
		f.Add([]byte(tt.tar))
	}
	f.Add(makeTar(f, []file{{name: "bin/", kind: tar.TypeDir},
		{name: "bin/a", mode: 0o755, body: "x"}}))
	f.Fuzz(func(t *testing.T, archive []byte) {
		outer := t.TempDir()
		untarBelow(t, outer, archive)
		checkTree(t, outer)
	})
}
