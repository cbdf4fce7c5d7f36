package apt

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// do runs a command.
func do(t *testing.T, argv ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
}

// build builds a package without files.
func build(t *testing.T, name, version, arch string) string {
	t.Helper()
	dir := t.TempDir()
	control := "Package: " + name + "\nVersion: " + version + "\nArchitecture: " + arch +
		"\nMaintainer: x <x@example.com>\nDescription: x\n two\n .\n three\n"
	if err := put(filepath.Join(dir, "x/DEBIAN/control"), []byte(control)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, name+"_"+version+"_"+arch+".deb")
	do(t, "dpkg-deb", "--build", filepath.Join(dir, "x"), file)
	return file
}

// published is a repository with one package, and its signer.
type published struct {
	dir      string
	keep     int
	signer   Signer
	packages []string
}

func publish(t *testing.T) published {
	t.Helper()
	for _, program := range []string{"apt-get", "dpkg-deb", "gpg"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not on this machine", program)
		}
	}
	p := published{dir: t.TempDir(), packages: []string{build(t, "x", "1.2", "all")},
		signer: key(t)}
	p.write(t, time.Now(), time.Now().Add(time.Hour))
	return p
}

// key generates a key in a directory with a short path, because it holds the agent's socket.
func key(t *testing.T) Signer {
	t.Helper()
	home, err := os.MkdirTemp("", "gpg-")
	if err != nil {
		t.Fatal(err)
	}
	s, err := MakeKey(t.Context(), filepath.Join(home, "k"), "x")
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", s.Home, "--kill", "all").Run()
		_ = os.RemoveAll(home)
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// write writes and signs the repository, dated at.
func (p published) write(t *testing.T, at, until time.Time) {
	t.Helper()
	r := Repository{Origin: "o", Label: "l", Suite: "stable", Keep: p.keep,
		Architectures: []string{runtime.GOARCH}, Date: at, ValidUntil: until}
	if err := r.Write(p.dir, p.packages...); err != nil {
		t.Fatal(err)
	}
	if err := p.signer.Sign(t.Context(), p.dir, "stable"); err != nil {
		t.Fatal(err)
	}
}

// spoil adds a byte to a file of the repository.
func (p published) spoil(t *testing.T, pattern string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(p.dir, pattern))
	if err != nil || len(found) == 0 {
		t.Fatalf("there is no %s: %v", pattern, err)
	}
	for _, file := range found {
		data, err := os.ReadFile(file)
		if err == nil {
			err = put(file, append(data, '\n'))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// client is a separate root directory for apt.
type client struct{ root string }

// use returns a client of the repository, with deb822 and Signed-By.
func (p published) use(t *testing.T, s Signer) client {
	t.Helper()
	root := t.TempDir()
	source := fmt.Sprintf("Types: deb\nURIs: file:%s\nSuites: stable\nComponents: main\n"+
		"Signed-By: %s/key.gpg\n", p.dir, root)
	// Read settings from a file, so that this machine's apt settings are ignored.
	settings := strings.NewReplacer("ROOT", root).Replace(`
Dir::Etc "ROOT/none"; Dir::Etc::Parts "ROOT/none"; Dir::Etc::SourceParts "ROOT/none";
Dir::Etc::PreferencesParts "ROOT/none"; Dir::Etc::SourceList "ROOT/x.sources";
Dir::State "ROOT"; Dir::State::Status "ROOT/var/lib/dpkg/status"; Dir::Cache "ROOT";
Dir::Log "ROOT"; DPkg::Options { "--root=ROOT"; "--force-not-root"; "--log=ROOT/dpkg.log"; };
Debug::NoLocking "true"; APT::Sandbox::User "root"; APT::Update::Error-Mode "any";
Acquire::Languages "none";
`)
	for name, data := range map[string]string{"x.sources": source, "key.gpg": "",
		"none/.keep": "", "lists/partial/.keep": "", "var/lib/dpkg/status": "",
		"var/lib/dpkg/info/format":   "1\n",
		"var/lib/dpkg/updates/.keep": "", "apt.conf": settings} {
		if err := put(filepath.Join(root, name), []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	c := client{root}
	c.trust(t, s)
	return c
}

// trust replaces a client's keys with a signer's.
func (c client) trust(t *testing.T, s Signer) {
	t.Helper()
	public, err := s.Public(t.Context(), false)
	if err == nil {
		err = put(filepath.Join(c.root, "key.gpg"), public)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// installed returns the version of x that dpkg has installed in the client's root.
func (c client) installed(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "dpkg-query", "--admindir="+c.root+"/var/lib/dpkg",
		"--show", "--showformat=${Version}", "x").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func (c client) apt(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "apt-get", append([]string{"-q"}, args...)...)
	cmd.Dir = c.root
	cmd.Env = append(os.Environ(), "LC_ALL=C", "APT_CONFIG="+c.root+"/apt.conf")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The distribution's apt accepts only what the right key signed: nothing signed by another key, no
// expired or modified index, no other package.
func TestAptProves(t *testing.T) {
	now := time.Now()
	hour := time.Hour
	lists := "dists/stable/main/binary-" + runtime.GOARCH + "/"
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, p published) Signer
		fails  string
		says   string
	}{
		{"as published", func(_ *testing.T, p published) Signer { return p.signer }, "", ""},
		{"another key", func(t *testing.T, _ published) Signer { return key(t) }, "update",
			"NO_PUBKEY"},
		{"a stale index", func(t *testing.T, p published) Signer {
			p.write(t, now.Add(-2*hour), now.Add(-hour))
			return p.signer
		}, "update", "is expired"},
		{"a changed Release", func(t *testing.T, p published) Signer {
			file := filepath.Join(p.dir, "dists/stable/InRelease")
			text, err := os.ReadFile(file)
			if err == nil {
				err = put(file, []byte(strings.Replace(string(text), "Origin: o", "Origin: p", 1)))
			}
			if err != nil {
				t.Fatal(err)
			}
			return p.signer
		}, "update", "BADSIG"},
		{"a changed index", func(t *testing.T, p published) Signer {
			p.spoil(t, lists+"by-hash/SHA256/*")
			p.spoil(t, lists+"Packages*")
			return p.signer
		}, "update", "Hash Sum mismatch"},
		{"a changed package", func(t *testing.T, p published) Signer {
			p.spoil(t, "pool/main/x/x/*.deb")
			return p.signer
		}, "download", "Hash Sum mismatch"},
		{"an index that is being replaced", func(t *testing.T, p published) Signer {
			p.spoil(t, lists+"Packages*") // the signed index is found by its digest
			return p.signer
		}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := publish(t)
			c := p.use(t, tt.change(t, p))
			failed, words := "", ""
			for _, args := range [][]string{{"update"}, {"download", "x"}} {
				if out, err := c.apt(t, args...); err != nil {
					failed, words = args[0], out
					break
				}
			}
			if failed != tt.fails || !strings.Contains(words, tt.says) {
				t.Errorf("%q fails, want %q with %q: %s", failed, tt.fails, tt.says, words)
			}
			found, err := filepath.Glob(filepath.Join(c.root, "x_*.deb"))
			if err != nil || (len(found) == 1) != (tt.fails == "") {
				t.Errorf("fetched %q, %v", found, err)
			}
		})
	}
}

// A client that has read the old index can still fetch it by its digest.
func TestFormerIndexRemains(t *testing.T) {
	p := publish(t)
	const pattern = "dists/stable/main/*/by-hash/SHA256/*"
	before, err := filepath.Glob(filepath.Join(p.dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	p.packages = []string{build(t, "x", "1.3", "all")}
	p.write(t, time.Now(), time.Time{})
	after, err := filepath.Glob(filepath.Join(p.dir, pattern))
	if err != nil || len(before) != 2 || len(after) != 4 {
		t.Errorf("by their digests there are %d indexes, then %d: %v", len(before), len(after), err)
	}
}

// A web server can read what is published, whatever the umask of the publisher.
func TestPublishedForAll(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := filepath.Join(t.TempDir(), "a")
	if err := put(filepath.Join(dir, "b/c"), []byte("x")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"": os.ModeDir | 0o755, "b": os.ModeDir | 0o755,
		"b/c": 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode() != want {
			t.Errorf("%q is %v, %v", name, info.Mode(), err)
		}
	}
}

// The repository keeps the last versions: the distribution's apt and dpkg install the newest and go
// back to the previous one; older ones are removed.
func TestDowngrade(t *testing.T) {
	p := publish(t)
	p.keep = 2
	for _, version := range []string{"1.9", "1.10~rc.1"} { // not in the order of text
		p.packages = []string{build(t, "x", version, "all")}
		p.write(t, time.Now(), time.Time{})
	}
	c := p.use(t, p.signer)
	for _, step := range []struct {
		wanted, is string
		fails      bool
	}{
		{"x", "1.10~rc.1", false}, {"x=1.9", "1.9", false}, {"x=1.2", "1.9", true},
		{"x", "1.10~rc.1", false},
	} {
		out, err := c.apt(t, "update")
		if err == nil {
			out, err = c.apt(t, "install", "--yes", "--allow-downgrades", step.wanted)
		}
		if got := c.installed(t); (err != nil) != step.fails || got != step.is {
			t.Errorf("%s: %v, installed is %s, want %s\n%s", step.wanted, err, got, step.is, out)
		}
	}
	left, err := filepath.Glob(filepath.Join(p.dir, "pool/main/x/x/*.deb"))
	if err != nil || len(left) != 2 {
		t.Errorf("in the pool are %q, %v", left, err)
	}
}

// A version cannot be published again with other contents: machines may have its digest.
func TestPublishedVersionStays(t *testing.T) {
	p := publish(t)
	changed := build(t, "x", "1.2", "all")
	do(t, "ar", "r", changed, filepath.Join(p.dir, "dists/stable/Release"))
	err := Repository{Suite: "stable", Architectures: []string{runtime.GOARCH}}.Write(p.dir, changed)
	if err == nil || !strings.Contains(err.Error(), "x_1.2_all.deb") {
		t.Errorf("a version with other contents: %v", err)
	}
	p.write(t, time.Now(), time.Time{}) // the same contents
	c := p.use(t, p.signer)
	if out, err := c.apt(t, "update"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A new key signs only after machines trust it beside the old one, which is removed later. A
// machine that missed that does not trust the new key.
func TestKeysRotate(t *testing.T) {
	p := publish(t)
	former := p.signer
	next, err := MakeKey(t.Context(), former.Home, "next <next@example.com>")
	if err != nil {
		t.Fatal(err)
	}
	machine, late := p.use(t, Signer{Home: former.Home, Keys: []string{"=x"}}),
		p.use(t, Signer{Home: former.Home, Keys: []string{"=x"}})
	for _, stage := range []struct {
		keys       []string
		lateTrusts bool
	}{
		{[]string{"=x"}, true},
		{[]string{"=x", "next@example.com"}, true},
		{[]string{"next@example.com", "=x"}, false},
		{[]string{"next@example.com"}, false},
	} {
		p.signer = Signer{Home: next.Home, Keys: stage.keys}
		p.write(t, time.Now(), time.Time{})
		if out, err := machine.apt(t, "update"); err != nil {
			t.Errorf("signed by the first of %q: %v\n%s", stage.keys, err, out)
		}
		out, err := late.apt(t, "update")
		if (err == nil) != stage.lateTrusts || err != nil && !strings.Contains(out, "NO_PUBKEY") {
			t.Errorf("with the former key alone, %q: %v\n%s", stage.keys, err, out)
		}
		machine.trust(t, p.signer) // the keyring package of this release
	}
	if _, err := (Signer{Home: next.Home, Keys: []string{"=x", "missing"}}).Public(t.Context(),
		false); err == nil {
		t.Error("a key that is not there is left out of the list")
	}
}
