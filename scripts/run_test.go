package scripts

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// place is a machine for the scripts: a root directory, and helpers that record their arguments.
type place struct {
	t    *testing.T
	root string
	// bare are a new machine's directories.
	bare []string
	// helpers are scripts by name, added to those that always succeed.
	helpers map[string]string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, root: t.TempDir(), helpers: map[string]string{}}
	for _, dir := range []string{"run/systemd/system", "etc/systemd/system", "etc/apt/sources.list.d",
		"proc", "usr/share/keyrings", "usr/local/bin", "usr/local/lib", "usr/local/share", "tmp", "bin",
	} {
		if err := os.MkdirAll(filepath.Join(p.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.bare = p.files()
	p.put("etc/os-release", "ID=debian\nVERSION_ID=12\n")
	p.put("proc/meminfo", "MemTotal: 8000000 kB\n")
	return p
}

func (p *place) put(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		p.t.Fatal(err)
	}
}

// rooted returns a script with its paths below the root.
func (p *place) rooted(script string) string {
	for _, top := range []string{"/etc/", "/var/", "/run/", "/usr/", "/proc/"} {
		script = strings.ReplaceAll(script, " "+top, " "+p.root+top)
		script = strings.ReplaceAll(script, "="+top, "="+p.root+top)
	}
	return script
}

// run runs a script with its paths below the root.
func (p *place) run(script string, args ...string) (string, error) {
	p.t.Helper()
	script = p.rooted(script)
	for _, name := range []string{"apt-get", "systemctl", "dpkg-query"} {
		body, given := p.helpers[name]
		if !given && name == "dpkg-query" {
			body = "exit 1"
		}
		p.put("bin/"+name, "#!/bin/sh\necho \"${0##*/} $*\" >>"+p.root+"/asked\n"+body+"\n")
	}
	p.put("bin/id", "#!/bin/sh\necho 0\n")
	p.put("bin/uname", "#!/bin/sh\necho x86_64\n")
	p.put("bin/df", "#!/bin/sh\necho x\necho x 1 1 99999999 1 x\n")
	if body, given := p.helpers["curl"]; given {
		p.put("bin/curl", "#!/bin/sh\n"+body+"\n")
	}
	cmd := exec.Command("sh", append([]string{"-s", "--"}, args...)...)
	cmd.Stdin = strings.NewReader(script)
	cmd.Env = []string{"PATH=" + p.root + "/bin:/usr/bin:/bin", "TMPDIR=" + p.root + "/tmp"}
	out, err := cmd.CombinedOutput()
	p.t.Logf("%q: %v\n%s", args, err, out)
	return string(out), err
}

// files returns all files and directories except those of a new machine.
func (p *place) files() []string {
	p.t.Helper()
	var found []string
	err := filepath.WalkDir(p.root, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, p.root+"/")
		top, _, _ := strings.Cut(name, "/")
		own := slices.Contains([]string{"bin", "proc", "asked", "run"}, top)
		if err == nil && !own && name != "etc/os-release" && !slices.Contains(p.bare, name) {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return found
}

// release returns install.sh of a release with one program; its URL is a directory for curl.
func (p *place) release() string { return p.published(p.t.TempDir(), "1.2.3", "unit") }

// published adds a version to a directory.
func (p *place) published(dir, version, unit string) string {
	p.t.Helper()
	program := filepath.Join(dir, "agent")
	if err := os.WriteFile(program, []byte("program"), 0o755); err != nil {
		p.t.Fatal(err)
	}
	r := Release{Version: version, URL: dir, Key: []byte("key"), Unit: unit,
		Programs: map[string]string{"amd64": program, "arm64": program},
		Notices:  map[string][]byte{"amd64": []byte("terms"), "arm64": []byte("others")}}
	if err := r.Write(dir); err != nil {
		p.t.Fatal(err)
	}
	p.helpers["curl"] = fetching(`cp "$a" "$out"`)
	text, err := os.ReadFile(filepath.Join(dir, "install.sh"))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// fetching returns a curl that runs a command with the URL in $a and the output file in $out.
func fetching(do string) string {
	return `for a; do [ "$before" = -o ] && out=$a; before=$a; done; ` + do
}

// brokenOff fails while it fetches the unit.
const brokenOff = `case $a in *service*) exit 18; esac; cp "$a" "$out"`

// A failed installation leaves the machine unchanged: no repository about which apt complains from
// then on, no partial file.
func TestFailedInstallLeavesNothing(t *testing.T) {
	const full = "cat() { command cat; return 1; }\n" // as on a disk without room
	for name, tt := range map[string]struct {
		helpers map[string]string
		before  string
		args    []string
	}{
		"apt cannot read the index": {helpers: map[string]string{"apt-get": "exit 100"}},
		"apt cannot install":        {helpers: map[string]string{"apt-get": `[ "$1" = update ]`}},
		"a full disk":               {before: full},
		"a full disk, without apt":  {before: full, args: []string{"--no-apt"}},
		"a disk that cannot write":  {before: "sync() { false; }\n", args: []string{"--no-apt"}},
		"a server that breaks off": {helpers: map[string]string{"curl": fetching(brokenOff)},
			args: []string{"--no-apt"}},
		"a server that breaks off after the licences": {helpers: map[string]string{
			"curl": fetching(`case $a in *_amd64) exit 18; esac; cp "$a" "$out"`)},
			args: []string{"--no-apt"}},
		"a notice that cannot be put in its place": {args: []string{"--no-apt"},
			before: `mv() { case $2 in */NOTICE) return 1 ;; esac; command mv "$@"; }` + "\n"},
		"a file that is another one": {args: []string{"--no-apt"},
			helpers: map[string]string{"curl": fetching(`echo x >"$out"`)}},
		"a repository without a key": {args: []string{"--repository", "https://example.org"}},
		"an armored key": {args: []string{"--repository", "https://example.org",
			"--key", "ARMORED"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			script := p.release()
			if slices.Contains(tt.args, "--repository") {
				script = install
			}
			for helper, body := range tt.helpers {
				p.helpers[helper] = body
			}
			armored := filepath.Join(t.TempDir(), "key.asc")
			text := []byte("-----BEGIN PGP PUBLIC KEY BLOCK-----\n")
			if err := os.WriteFile(armored, text, 0o600); err != nil {
				t.Fatal(err)
			}
			args := slices.Clone(tt.args)
			for i := range args {
				args[i] = strings.Replace(args[i], "ARMORED", armored, 1)
			}
			if out, err := p.run(tt.before+script, args...); err == nil {
				t.Errorf("it succeeds:\n%s", out)
			}
			if left := p.files(); len(left) > 0 {
				t.Errorf("left are %q", left)
			}
		})
	}
}

// The script of a version installs it after the next one is published.
func TestInstallsAnOlderVersion(t *testing.T) {
	p, dir := newPlace(t), t.TempDir()
	older := p.published(dir, "1.2.3", "unit")
	p.published(dir, "1.2.4", "another unit")
	if out, err := p.run(older, "--no-apt"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const unit = "etc/systemd/system/aks-flex-node-agent.service"
	if text, err := os.ReadFile(filepath.Join(p.root, unit)); string(text) != "unit" {
		t.Errorf("the unit is %q, %v", text, err)
	}
}

// A failed reinstallation leaves the installed version in place.
func TestFailedUpgradeKeepsWhatIsThere(t *testing.T) {
	p := newPlace(t)
	script := p.release()
	if out, err := p.run(script, "--no-apt"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	before := p.files()
	p.put("usr/local/bin/aks-flex-node", "an older one")
	p.helpers["curl"] = fetching(brokenOff)
	if out, err := p.run(script, "--no-apt"); err == nil {
		t.Errorf("it succeeds:\n%s", out)
	}
	text, err := os.ReadFile(filepath.Join(p.root, "usr/local/bin/aks-flex-node"))
	if err != nil || string(text) != "an older one" || !slices.Equal(p.files(), before) {
		t.Errorf("the program is %q, %v; there are %q, and were %q", text, err, p.files(), before)
	}
}

// A working repository stays if another one, or another key, does not work.
func TestFailedRepositoryKeepsTheFormer(t *testing.T) {
	p := newPlace(t)
	script := p.release()
	if out, err := p.run(script); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	key := filepath.Join(t.TempDir(), "key.gpg")
	if err := os.WriteFile(key, []byte("another key"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.put("etc/apt/keyrings/others.gpg", "") // apt has made the directory
	const source = "etc/apt/sources.list.d/aks-flex-node.sources"
	const keyring = "usr/share/keyrings/aks-flex-node-archive-keyring.gpg"
	read := func() [2]string {
		var texts [2]string
		for i, name := range []string{source, keyring} {
			text, err := os.ReadFile(filepath.Join(p.root, name))
			if err != nil {
				t.Fatal(err)
			}
			texts[i] = string(text)
		}
		return texts
	}
	before, was := read(), p.files()
	args := []string{"--repository", "https://wrong.example", "--key", key}
	p.helpers["dpkg-query"] = "echo installed"
	for what, apt := range map[string]string{
		"it is not signed": "exit 100",
		"its server is not there, of which apt only warns, if it is not told else": `case "$*" in ` +
			`*sourcelist=*aks-flex-node.sources*Error-Mode=any*) exit 100; esac`,
	} {
		p.helpers["apt-get"] = apt
		if out, err := p.run(script, args...); err == nil {
			t.Errorf("%s: it succeeds:\n%s", what, out)
		}
		if now := read(); now != before {
			t.Errorf("%s: repository and key are %q, and were %q", what, now, before)
		}
	}
	const full = "cat() { command cat; return 1; }\n"
	if out, err := p.run(full+script, args...); err == nil {
		t.Errorf("with a full disk it succeeds:\n%s", out)
	}
	if now, left := read(), p.files(); now != before || !slices.Equal(left, was) {
		t.Errorf("after a full disk: %q, and were %q; there are %q", now, before, left)
	}
	p.helpers["apt-get"] = `[ "$1" = update ]` // its index is valid
	if out, err := p.run(script, args...); err == nil {
		t.Errorf("it succeeds:\n%s", out)
	}
	// The given key is beside that of the keyring package, which would replace it.
	const given = "etc/apt/keyrings/aks-flex-node.gpg"
	text, err := os.ReadFile(filepath.Join(p.root, given))
	if now := read(); err != nil || string(text) != "another key" || now[1] != before[1] ||
		!strings.Contains(now[0], given) {
		t.Errorf("repository and key are %q, the given key is %q, %v", now, text, err)
	}
	// A key of the keyring package may be newer than that of the script.
	p.put(keyring, "a newer key")
	if _, err := p.run(script); err == nil || read()[1] != "a newer key" {
		t.Errorf("the key is %q, %v", read()[1], err)
	}
}

// The installation waits while another apt reads the indexes, as a new machine does by itself.
func TestInstallWhileAptIsBusy(t *testing.T) {
	p := newPlace(t)
	script := p.release()
	p.put("var/lib/apt/lists/lock", "")
	info, err := os.Stat(filepath.Join(p.root, "var/lib/apt/lists/lock"))
	if err != nil {
		t.Fatal(err)
	}
	inode := info.Sys().(*syscall.Stat_t).Ino
	tried := filepath.Join(p.root, "run/tried")
	p.helpers["apt-get"] = "[ $1 = install ] || [ -e " + tried + " ] || { touch " + tried +
		"; exit 100; }"
	const quick = "sleep() { echo \"slept $*\"; }\n"
	for held, want := range map[uint64]bool{inode: true, inode + 1: false} {
		p.put("proc/locks", fmt.Sprintf("1: POSIX  ADVISORY  WRITE 7 fe:00:%d 0 EOF\n", held))
		_ = os.Remove(tried)
		out, err := p.run(quick+script, "--dry-run")
		if err != nil || strings.Contains(out, "slept") {
			t.Errorf("what would be done waits: %v\n%s", err, out)
		}
		if out, err := p.run(quick + script); (err == nil) != want ||
			strings.Contains(out, "slept") != want {
			t.Errorf("held by another apt: %t; %v\n%s", want, err, out)
		}
	}
	p.helpers["apt-get"] = "exit 100"
	p.put("proc/locks", fmt.Sprintf("1: POSIX  ADVISORY  WRITE 7 fe:00:%d 0 EOF\n", inode))
	if out, err := p.run(quick + script); err == nil || strings.Count(out, "slept") != 60 {
		t.Errorf("it waits for ever: %v\n%s", err, out)
	}
}

// A requested version is installed even if it is older.
func TestVersionThatIsAskedFor(t *testing.T) {
	p := newPlace(t)
	for _, tt := range []struct {
		args []string
		want bool
	}{{nil, false}, {[]string{"--version", "1.0.0"}, true}} {
		out, err := p.run(p.release(), tt.args...)
		if err != nil || strings.Contains(out, "--allow-downgrades") != tt.want ||
			strings.Contains(out, " aks-flex-node=1.0.0 ") != tt.want {
			t.Errorf("%q: %v\n%s", tt.args, err, out)
		}
	}
}

// The sample lets the service use the Azure CLI login of the user who called sudo.
func TestSampleNamesWhoInstalls(t *testing.T) {
	for user, want := range map[string]string{
		"ada": `"cliUser": "ada",`, "root": "", "": "", `a"b`: "",
	} {
		p := newPlace(t)
		if out, err := p.run("SUDO_USER='"+user+"'\n"+p.release(), "--no-apt"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		sample, err := os.ReadFile(filepath.Join(p.root, "etc/aks-flex-node/config.json.sample"))
		if err != nil || strings.Contains(string(sample), "cliUser") != (want != "") ||
			!strings.Contains(string(sample), want) {
			t.Errorf("%q: %v\n%s", user, err, sample)
		}
	}
}

// Without systemd, as in a rescue system, everything is removed except what needs systemd.
func TestUninstallWithoutSystemd(t *testing.T) {
	p := newPlace(t)
	if out, err := p.run(p.release(), "--no-apt"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Remove(filepath.Join(p.root, "run/systemd/system")); err != nil {
		t.Fatal(err)
	}
	p.helpers["systemctl"] = `[ "$1 $2" = "disable aks-flex-node-agent.service" ]`
	if out, err := p.run(uninstall, "--force"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if left := p.files(); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}

// After being killed at any command that changes something, a second run installs the same files,
// and uninstall.sh removes what the first left.
func TestKilledInstall(t *testing.T) {
	// The script may be killed before and after each of these.
	const moments = `burn() { fuse=$((fuse - 1)); [ $fuse -gt 0 ] || kill -9 $$; }
chmod() { burn; command chmod "$@"; burn; }
mv() { burn; command mv "$@"; burn; }
cat() { burn; command cat "$@"; }
`
	for _, way := range []string{"--no-apt", "apt"} {
		var args []string
		if way != "apt" {
			args = []string{way}
		}
		whole := newPlace(t)
		if out, err := whole.run(whole.release(), args...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		want := whole.files()
		for kill := 1; ; kill++ {
			p := newPlace(t)
			script := p.release()
			fuse := fmt.Sprintf("fuse=%d\n", kill) + moments
			_, err := p.run(fuse+script, args...)
			if err == nil {
				if kill < 5 {
					t.Errorf("%s: it was killed only %d times", way, kill-1)
				}
				break
			}
			if out, err := p.run(uninstall, "--force"); err != nil {
				t.Errorf("%s, killed at %d: uninstall.sh: %v\n%s", way, kill, err, out)
			}
			if left := p.files(); len(left) > 0 {
				t.Errorf("%s, killed at %d: uninstall.sh leaves %q", way, kill, left)
			}
			p = newPlace(t)
			script = p.release()
			_, _ = p.run(fuse+script, args...)
			if out, err := p.run(script, args...); err != nil {
				t.Errorf("%s, killed at %d, and again: %v\n%s", way, kill, err, out)
			}
			if got := p.files(); !slices.Equal(got, want) {
				t.Errorf("%s, killed at %d, and again: %q, want %q", way, kill, got, want)
			}
		}
	}
}

// uninstall.sh succeeds and does nothing if run again, or without an installation.
func TestUninstallTwice(t *testing.T) {
	p := newPlace(t)
	if out, err := p.run(p.release(), "--no-apt"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p.put("etc/aks-flex-node/own.txt", "somebody's")
	for range 3 {
		if out, err := p.run(uninstall, "--force"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if left := p.files(); !slices.Equal(left,
			[]string{"etc/aks-flex-node", "etc/aks-flex-node/own.txt"}) {
			t.Errorf("left are %q", left)
		}
	}
}

// A node is not uninstalled, even with --force or without its ledger: unbootstrap comes first.
// Nothing is removed.
func TestUninstallRefusesNode(t *testing.T) {
	for file, says := range map[string]string{
		"ledger.json":      "run `aks-flex-node unbootstrap` first",
		"join-state.json":  "run `aks-flex-node unbootstrap --force` first",
		"transition.json":  "run `aks-flex-node unbootstrap` first",
		"node-ledger.json": "run `aks-flex-node unbootstrap` first",
	} {
		p := newPlace(t)
		if out, err := p.run(p.release(), "--no-apt"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		p.put("var/lib/aks-flex-node/"+file, "{}")
		before := p.files()
		for _, args := range [][]string{{"--force"}, {"--force", "--dry-run"}} {
			out, err := p.run(uninstall, args...)
			if err == nil || !strings.Contains(out, says) {
				t.Errorf("%s, %q: %v\n%s", file, args, err, out)
			}
		}
		if left := p.files(); !slices.Equal(left, before) {
			t.Errorf("%s: left are %q", file, left)
		}
	}
}

// Without apt, the licences of the program's code are installed and removed with it. So is the
// documentation directory, unless it existed or is used otherwise.
func TestNotice(t *testing.T) {
	const docs, own = "usr/local/share/doc", "usr/local/share/doc/aks-flex-node"
	for name, tt := range map[string]struct {
		before, then string
		left         []string
	}{
		"no directory":       {},
		"an empty directory": {before: docs, left: []string{docs}},
		"other documents":    {then: docs + "/x/y", left: []string{docs, docs + "/x", docs + "/x/y"}},
		"a file beside":      {then: own + "/x", left: []string{docs, own, own + "/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			if tt.before != "" {
				if err := os.Mkdir(filepath.Join(p.root, tt.before), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			script := p.release()
			for range 2 { // the second run is an upgrade
				if out, err := p.run("umask 077\n"+script, "--no-apt"); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			file := filepath.Join(p.root, own, "NOTICE")
			text, err := os.ReadFile(file)
			if err != nil || string(text) != "terms" {
				t.Errorf("the notice is %q, %v", text, err)
			}
			for name, mode := range map[string]os.FileMode{file: 0o644,
				filepath.Dir(file): os.ModeDir | 0o755} {
				if info, err := os.Stat(name); err != nil || info.Mode() != mode {
					t.Errorf("%s, for all to read: %v, %v", name, info, err)
				}
			}
			if tt.then != "" {
				p.put(tt.then, "somebody's")
			}
			if out, err := p.run(uninstall, "--force"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if left := p.files(); !slices.Equal(left, tt.left) {
				t.Errorf("left are %q, want %q", left, tt.left)
			}
		})
	}
}

// If another repository on the machine cannot be read, the script warns; the installation fails if
// it was needed.
func TestAnotherRepositoryIsBroken(t *testing.T) {
	p := newPlace(t)
	p.helpers["apt-get"] = `case "$*" in update*sourcelist=*) ;; update*) exit 100 ;; esac`
	out, err := p.run(p.release())
	asked, _ := os.ReadFile(filepath.Join(p.root, "asked"))
	if err != nil || !strings.Contains(out, "warning: the indexes of other repositories") ||
		!strings.Contains(string(asked), "apt-get install ") {
		t.Errorf("%v\n%s\n%s", err, out, asked)
	}
}

// A release's script installs its own version, and never an older one than installed, unless its
// arguments say so.
func TestInstallsItsOwnVersion(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
		down bool
	}{
		{nil, " aks-flex-node=1.2.3 ", false},
		{[]string{"--version", "1.0.0"}, " aks-flex-node=1.0.0 ", true},
		{[]string{"--version", "latest"}, " aks-flex-node ", false},
	} {
		p := newPlace(t)
		out, err := p.run(p.release(), tt.args...)
		asked, _ := os.ReadFile(filepath.Join(p.root, "asked"))
		if err != nil || !strings.Contains(string(asked), tt.want) ||
			strings.Contains(string(asked), "--allow-downgrades") != tt.down {
			t.Errorf("%q: %v\n%s\n%s", tt.args, err, out, asked)
		}
	}
}

// Every request has a time limit.
func TestTimeLimits(t *testing.T) {
	p := newPlace(t)
	script := p.release()
	p.helpers["curl"] = `echo "curl $*" >>` + p.root + "/asked\n" + fetching(`cp "$a" "$out"`)
	for _, args := range [][]string{{"--no-apt"}, nil} {
		if len(args) == 0 {
			p = newPlace(t)
		}
		if out, err := p.run(script, args...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		asked, _ := os.ReadFile(filepath.Join(p.root, "asked"))
		for line := range strings.Lines(string(asked)) {
			fetches := strings.HasPrefix(line, "curl ") || strings.HasPrefix(line, "apt-get ")
			if fetches && !strings.Contains(line, "--connect-timeout 30 --speed-limit 1 --speed-time 30") &&
				!strings.Contains(line, "Acquire::http::Timeout=30 -o Acquire::https::Timeout=30") {
				t.Errorf("without a limit: %s", line)
			}
		}
	}
}

// The printed next steps fit the machine: they do not overwrite an existing configuration.
func TestNextStepFits(t *testing.T) {
	const sample, enable = "cp ", "systemctl enable --now aks-flex-node-agent"
	for _, tt := range []struct {
		file, says string
		not        []string
	}{
		{"", "config.json.sample ", []string{"remains"}},
		{"etc/aks-flex-node/config.json", "config validate", []string{sample, "remains"}},
		{"var/lib/aks-flex-node/ledger.json", "is a node, and remains one",
			[]string{sample, "config validate"}},
	} {
		p := newPlace(t)
		if tt.file != "" {
			p.put(tt.file, "{}")
		}
		out, err := p.run(p.release())
		_, next, _ := strings.Cut(out, "aks-flex-node is installed")
		if err != nil || !strings.Contains(next, tt.says) || !strings.Contains(next, enable) {
			t.Errorf("with %q: %v\n%s", tt.file, err, next)
		}
		for _, not := range tt.not {
			if strings.Contains(next, not) {
				t.Errorf("with %q it says %q:\n%s", tt.file, not, next)
			}
		}
	}
}

// The sources' install.sh runs that of the latest release with its arguments. It does not run a
// truncated one or one that is not a release's.
func TestInstallFromTheSources(t *testing.T) {
	const latest = "https://github.com/Azure/AKSFlexNode/releases/latest/download/install.sh"
	released := newPlace(t).release()
	for name, tt := range map[string]struct {
		found string
		want  string
	}{
		"the latest release": {found: released},
		"not a release":      {found: install, want: "is not the script of a release"},
		"cut off": {found: released[:len(released)-20],
			want: "is not the script of a release"},
		"no answer": {want: "cannot download " + latest},
	} {
		p := newPlace(t)
		p.release() // writes the files that its script fetches
		p.put("tmp/found", p.rooted(tt.found))
		p.helpers["curl"] = fetching(`case $a in ` + latest + `) [ -s ` + p.root + `/tmp/found ] && ` +
			`cp ` + p.root + `/tmp/found "$out" ;; *) exit 22 ;; esac`)
		out, err := p.run(install, "--version", "1.0.0")
		if tt.want == "" && (err != nil || !strings.Contains(out, " aks-flex-node=1.0.0 ")) ||
			tt.want != "" && (err == nil || !strings.Contains(out, tt.want)) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if left, err := os.ReadDir(filepath.Join(p.root, "tmp")); err != nil || len(left) != 1 {
			t.Errorf("%s: left are %v, %v", name, left, err)
		}
	}
}

// If it is interrupted while it fetches the latest release's script, no files are left.
func TestInterruptedFromTheSources(t *testing.T) {
	p := newPlace(t)
	p.put("tmp/found", "")
	p.helpers["curl"] = "kill -TERM $PPID"
	if _, err := p.run(install); err == nil {
		t.Error("it goes on")
	}
	if left, err := os.ReadDir(filepath.Join(p.root, "tmp")); err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// A machine that becomes a node while the script works keeps its records.
func TestJoinsMeanwhile(t *testing.T) {
	p := newPlace(t)
	if out, err := p.run(p.release(), "--no-apt"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := p.root + "/var/lib/aks-flex-node"
	p.helpers["systemctl"] = `case "$1" in disable) mkdir -p ` + dir + `; echo '{}' >` + dir +
		`/ledger.json ;; esac`
	out, err := p.run(uninstall, "--force")
	if err == nil || !strings.Contains(out, "unbootstrap") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := os.Stat(dir + "/ledger.json"); err != nil {
		t.Error(err)
	}
}
