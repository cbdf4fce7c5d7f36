package config

import (
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// paper is a file of a file system that exists in a map only, so that a test can choose its owner.
type paper struct {
	user uint32
	mode fs.FileMode
	link string
}

func (p paper) Name() string       { return "" }
func (p paper) Size() int64        { return 0 }
func (p paper) Mode() fs.FileMode  { return p.mode }
func (p paper) ModTime() time.Time { return time.Time{} }
func (p paper) IsDir() bool        { return p.mode.IsDir() }
func (p paper) Sys() any           { return &syscall.Stat_t{Uid: p.user} }

// paperTrust asks about paths in a system of good directories and the given files.
func paperTrust(caller int, files map[string]paper) trust {
	const dir = fs.ModeDir | 0o755
	system := map[string]paper{
		"/": {mode: dir}, "/etc": {mode: dir}, "/etc/aks-flex-node": {mode: dir},
		"/usr":  {mode: dir},
		"/home": {mode: dir}, "/home/ubuntu": {user: 1000, mode: dir},
		"/tmp": {mode: fs.ModeDir | fs.ModeSticky | 0o777}, "/srv": {mode: dir},
	}
	for path, file := range files {
		system[path] = file
	}
	find := func(path string) (paper, error) {
		if file, ok := system[path]; ok {
			return file, nil
		}
		return paper{}, &fs.PathError{Op: "lstat", Path: path, Err: fs.ErrNotExist}
	}
	return trust{
		caller: caller,
		lstat:  func(path string) (fs.FileInfo, error) { return find(path) },
		readlink: func(path string) (string, error) {
			file, err := find(path)
			return file.link, err
		},
	}
}

func TestTrusted(t *testing.T) {
	const (
		etc  = "/etc/aks-flex-node/config.json"
		home = "/home/ubuntu/config.json"
		open = fs.ModeDir | 0o775
		link = fs.ModeSymlink | 0o777
	)
	for _, test := range []struct {
		name, path string
		caller     int
		files      map[string]paper
		// want ends the error; "" is trust.
		want string
	}{
		{"root's file", etc, 0, map[string]paper{etc: {mode: 0o644}}, ""},
		{"a user's file", etc, 0, map[string]paper{etc: {user: 1000, mode: 0o600}},
			etc + " belongs to user 1000; " +
				"run `chown root:root " + etc + " && chmod go-w " + etc + "`"},
		{"a file of root's group", etc, 0, map[string]paper{etc: {mode: 0o664}},
			"its group (mode 0664); run `chmod go-w " + etc + "`"},
		{"everybody's file", etc, 0, map[string]paper{etc: {mode: 0o646}},
			"every user (mode 0646); run `chmod go-w " + etc + "`"},
		{"a group's directory", etc, 0,
			map[string]paper{etc: {mode: 0o600}, "/etc/aks-flex-node": {mode: open}},
			"its group (mode 0775); run `chmod go-w /etc/aks-flex-node`"},
		{"a user's directory of the system", etc, 0,
			map[string]paper{etc: {mode: 0o600}, "/etc": {user: 1, mode: open}},
			"run `chown root:root /etc && chmod go-w /etc`"},
		{"two flaws", etc, 0,
			map[string]paper{etc: {user: 7, mode: 0o600}, "/etc": {mode: open}},
			"run `chmod go-w /etc && chown root:root " + etc + " && chmod go-w " + etc + "`"},
		{"a user's home", home, 0, map[string]paper{home: {mode: 0o600}},
			"/home/ubuntu belongs to user 1000; use a copy that only root can change: " +
				"run `install -D -m 600 -t /etc/aks-flex-node " + home + "`"},
		{"a user's program", "/home/ubuntu/p", 0, map[string]paper{"/home/ubuntu/p": {mode: 0o755}},
			"run `install -m 755 /home/ubuntu/p /usr/local/bin/`"},
		{"a group's program", "/usr/p", 0, map[string]paper{"/usr/p": {mode: 0o775}},
			"run `chmod go-w /usr/p`"},
		{"a sticky directory", "/tmp/c", 0, map[string]paper{"/tmp/c": {mode: 0o600}},
			"/tmp can be changed by every user (mode 1777); use a copy that only root can change: " +
				"run `install -D -m 600 -t /etc/aks-flex-node /tmp/c`"},
		{"a name with a quote", "/srv/it's", 0, map[string]paper{"/srv/it's": {mode: 0o666}},
			`run ` + "`" + `chmod go-w '/srv/it'\''s'` + "`"},
		{"a link to a user's file", etc, 0,
			map[string]paper{etc: {mode: link, link: "../../home/ubuntu/c"}, "/home/ubuntu/c": {}},
			"run `install -D -m 600 -t /etc/aks-flex-node " + etc + "`"},
		{"a link in a user's directory", home, 0,
			map[string]paper{home: {mode: link, link: etc}, etc: {mode: 0o600}},
			"/home/ubuntu belongs to user 1000; use a copy that only root can change: " +
				"run `install -D -m 600 -t /etc/aks-flex-node " + home + "`"},
		{"a link to root's file", "/srv/c", 0,
			map[string]paper{"/srv/c": {mode: link, link: etc}, etc: {mode: 0o600}}, ""},
		{"a link to itself", "/srv/c", 0, map[string]paper{"/srv/c": {mode: link, link: "c"}},
			"too many levels of symbolic links"},
		{"no file", "/srv/c", 0, nil, "file does not exist"},
		{"the caller's own", home, 1000, map[string]paper{home: {user: 1000, mode: 0o600}}, ""},
		{"another user's", home, 1001, map[string]paper{home: {user: 1001, mode: 0o600}},
			"-t /etc/aks-flex-node " + home + "`"},
		{"the caller's in a sticky directory", "/tmp/c", 1000,
			map[string]paper{"/tmp/c": {user: 1000, mode: 0o600}}, ""},
	} {
		err := paperTrust(test.caller, test.files).check(test.path)
		if (err == nil) != (test.want == "") ||
			err != nil && !strings.HasSuffix(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
}

// safeDir returns a directory that only root and the caller can change. A test of root's needs one
// outside of /tmp.
func safeDir(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("/run", "config-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestTrustedAsksTheSystem(t *testing.T) {
	dir := safeDir(t)
	t.Chdir(dir)
	if err := os.WriteFile("c.json", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("c.json", "link"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir + "/c.json", "c.json", "link"} {
		if err := Trusted(path); err != nil {
			t.Error(err)
		}
	}
	if err := os.Chmod(dir, 0o770); err != nil {
		t.Fatal(err)
	}
	want := "run `chmod go-w " + dir + "`"
	if err := Trusted("link"); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("a group's directory: got %v, want %s", err, want)
	}
}
