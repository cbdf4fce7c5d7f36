package deb

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// programs builds the agent, and a small program in place of the provider.
func programs(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"dpkg-deb", "lintian"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not on this machine", tool)
		}
	}
	dir := t.TempDir()
	for name, source := range map[string][2]string{
		Agent: {"../..", "./cmd/aks-flex-node"}, Provider: {".", "./testdata/provider"},
	} {
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w",
			"-o", filepath.Join(dir, runtime.GOARCH, name), source[1])
		build.Dir = source[0] // a program is built in its own module
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("cannot build %s: %v\n%s", name, err, out)
		}
	}
	return dir
}

// made makes packages in a new directory under an umask.
func made(t *testing.T, r Release, umask int) []string {
	t.Helper()
	defer syscall.Umask(syscall.Umask(umask))
	files, err := r.Write(t.Context(), filepath.Join(t.TempDir(), "packages"),
		[]string{Agent, Provider}, []string{runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The same programs make the same packages, byte for byte, independent of place, time and umask.
// lintian has no complaints, and each package has the files of its kind.
func TestPackages(t *testing.T) {
	r := Release{Version: "1.2.3", Commit: "abc", Time: time.Unix(1795344566, 0),
		Native:     runtime.GOARCH,
		Maintainer: "AKS Flex Node authors <aksflexnode@users.noreply.github.com>",
		Programs:   programs(t), Key: []byte("key"), Fast: true}
	files := made(t, r, 0o022)
	if len(files) != 3 {
		t.Fatalf("the packages are %q", files)
	}
	for i, again := range made(t, r, 0o077) {
		a, err := os.ReadFile(files[i])
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(again)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s is another one each time", filepath.Base(again))
		}
	}
	lint := append([]string{"--fail-on=error,warning", "--tag-display-limit=0", "--allow-root"},
		files...)
	if out, err := exec.Command("lintian", lint...).CombinedOutput(); err != nil ||
		bytes.Contains(out, []byte("W: ")) || bytes.Contains(out, []byte("E: ")) {
		t.Errorf("lintian: %v\n%s", err, out)
	}
	for _, file := range files {
		t.Run(strings.Split(filepath.Base(file), "_")[0], func(t *testing.T) { contents(t, file) })
	}
}

// contents checks that there are no files in /usr/local, no conffiles, and a unit for /usr/bin.
func contents(t *testing.T, file string) {
	tree := t.TempDir()
	if out, err := exec.Command("dpkg-deb", "--raw-extract", file, tree).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	name := strings.Split(filepath.Base(file), "_")[0]
	for _, path := range []string{"usr/local", "DEBIAN/conffiles"} {
		if _, err := os.Lstat(filepath.Join(tree, path)); err == nil {
			t.Errorf("it has %s", path)
		}
	}
	if name == "aks-flex-node-archive-keyring" {
		return
	}
	for path, mode := range map[string]os.FileMode{
		"usr/bin/" + name: 0o755, "etc/" + name: 0o755 | os.ModeDir,
		"usr/share/man/man8/" + name + ".8.gz":                  0o644,
		"usr/share/bash-completion/completions/" + name:         0o644,
		"usr/share/zsh/vendor-completions/_" + name:             0o644,
		"usr/share/fish/vendor_completions.d/" + name + ".fish": 0o644,
		"usr/share/doc/" + name + "/copyright":                  0o644,
		"DEBIAN/prerm":                                          0o755,
		"DEBIAN/postrm":                                         0o755,
		"DEBIAN/postinst":                                       0o755,
		"DEBIAN/md5sums":                                        0o644,
	} {
		if info, err := os.Lstat(filepath.Join(tree, path)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	units, err := filepath.Glob(filepath.Join(tree, "usr/lib/systemd/system/*"))
	if err != nil || len(units) != 1 {
		t.Fatalf("the units are %q, %v", units, err)
	}
	text, err := os.ReadFile(units[0])
	if err != nil || !strings.Contains(string(text), "\nExecStart=/usr/bin/"+name+" ") {
		t.Errorf("the unit: %v\n%s", err, text)
	}
	terms(t, name, filepath.Join(tree, "usr/share/doc", name))
	materials(t, name, filepath.Join(tree, "usr/share/doc", name, "sbom.cdx.json"))
}

// terms checks for the licences of Go and of every module linked into the program.
func terms(t *testing.T, name, dir string) {
	out, err := exec.Command("gzip", "-dc", filepath.Join(dir, "NOTICE.gz")).Output()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(filepath.Join(dir, "../../../bin", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range info.Deps {
		if !bytes.Contains(out, []byte("\n"+m.Path+"@"+m.Version+", ")) {
			t.Errorf("the notice of %s does not have %s", name, m.Path)
		}
	}
	if !bytes.Contains(out, []byte("\nGo "+strings.TrimPrefix(info.GoVersion, "go")+", LICENSE")) ||
		(name == "aks-flex-node") != bytes.Contains(out, []byte("Apache License")) {
		t.Errorf("the notice of %s begins\n%.2000s", name, out)
	}
}

// materials checks for the program's modules with versions, and for the artifacts that the agent
// installs with their digests.
func materials(t *testing.T, name, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat, SpecVersion, SerialNumber string
		Components                           []struct {
			Name, Version string
			Hashes        []struct{ Alg, Content string }
		}
	}
	if err := json.Unmarshal(text, &bom); err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, c := range bom.Components {
		found[c.Name]++
		pinned := c.Name == "kubelet" || c.Name == "containerd" || c.Name == "runc"
		if c.Version == "" || pinned && (len(c.Hashes) != 1 || len(c.Hashes[0].Content) != 64) {
			t.Errorf("a component is %+v", c)
		}
	}
	agent := name == "aks-flex-node"
	if bom.BOMFormat != "CycloneDX" || bom.SpecVersion != "1.6" || found["std"] != 1 ||
		(found["github.com/spf13/cobra"] == 1) != agent || (found["kubelet"] > 0) != agent {
		t.Errorf("%s %s has %v", bom.BOMFormat, bom.SpecVersion, found)
	}
}

// The licence in the packages is the project's.
func TestCopyright(t *testing.T) {
	text, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	words := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	_, license, _ := strings.Cut(string(text), "authors\n")
	if !strings.Contains(words(strings.ReplaceAll(copyright, "\n .\n", "\n\n")), words(license)) {
		t.Error("copyright is not LICENSE")
	}
}

// The statement names every file with its digest, and the sources.
func TestProvenance(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.deb")
	if err := os.WriteFile(file, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := Release{Version: "1.2.3", Commit: "abc"}
	text, err := Provenance(r, []string{file}, filepath.Dir(file), "a.deb")
	if err != nil {
		t.Fatal(err)
	}
	const digest = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
	for _, want := range []string{`"sha256": "` + digest + `"`, `"name": "a.deb"`,
		`"gitCommit": "abc"`, `"predicateType": "https://slsa.dev/provenance/v1"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("it does not say %s:\n%s", want, text)
		}
	}
}

// dpkg orders the versions correctly.
func TestVersion(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("dpkg is not on this machine")
	}
	early, late := time.Unix(1795344566, 0), time.Unix(1795344567, 0)
	last := "0.0.0~0"
	for _, tt := range []struct {
		version string
		built   time.Time
		want    string
	}{
		{"e898b38", early, "0.0.0~20261122104926.e898b38"},
		{"dev", late, "0.0.0~20261122104927.dev"},
		{"v0.1.0-dev.40", late, "0.1.0~dev.40"},
		{"v0.1.0-rc.1", late, "0.1.0~rc.1"},
		{"v0.1.0-rc.1-3-gabc1234", early, "0.1.0~rc.1+3.gabc1234"},
		{"v0.1.0", early, "0.1.0"},
		{"v0.1.0-3-gabc1234", early, "0.1.0+3.gabc1234"},
		{"v0.1.0-14-gabc1234-dirty", early, "0.1.0+14.gabc1234+dirty"},
		{"1.2.3", early, "1.2.3"},
	} {
		got := Version(tt.version, tt.built)
		if got != tt.want {
			t.Errorf("%s becomes %s, want %s", tt.version, got, tt.want)
		}
		if err := exec.Command("dpkg", "--compare-versions", last, "lt", got).Run(); err != nil {
			t.Errorf("%s does not come after %s: %v", got, last, err)
		}
		last = got
	}
}
