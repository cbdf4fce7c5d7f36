package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Trusted returns an error if a user other than root can change or replace the file at path. As
// with sshd's StrictModes, the file and every directory above it, also above links on the way, must
// belong to root and be writable by no one else. A caller who is not root is trusted like root, and
// so are sticky directories then. The error ends with the command that fixes it.
func Trusted(path string) error {
	return trust{caller: os.Geteuid(), lstat: os.Lstat, readlink: os.Readlink}.check(path)
}

// TrustError reports who else can change a file, and the command that fixes it.
type TrustError struct{ Why, separator, Command string }

func (e *TrustError) Error() string { return e.Why + e.separator + "run `" + e.Command + "`" }

// trust checks who can change a file, on behalf of one caller.
type trust struct {
	caller   int
	lstat    func(string) (fs.FileInfo, error)
	readlink func(string) (string, error)
}

// flaw describes a file or directory that another user can change. cure is the command that removes
// the access; "" if the directory should belong to another user, so that the file must be moved.
type flaw struct{ why, cure string }

func (t trust) check(path string) error {
	if !filepath.IsAbs(path) {
		dir, err := os.Getwd()
		if err != nil {
			return fmt.Errorf("cannot check who can change %s: %w", path, err)
		}
		path = dir + "/" + path
	}
	flaws, mode, err := t.walk(path)
	if err != nil {
		return fmt.Errorf("cannot check who can change %s: %w", path, err)
	}
	if len(flaws) == 0 {
		return nil
	}
	path = filepath.Clean(path)
	var reasons, cures []string
	for _, f := range flaws {
		reasons = append(reasons, f.why)
		cures = append(cures, f.cure)
	}
	why := fmt.Sprintf("cannot trust %s: %s", path, strings.Join(reasons, ", "))
	if slices.Contains(cures, "") {
		return &TrustError{why + "; use a copy that only root can change", ": ", copyCommand(path, mode)}
	}
	return &TrustError{why, "; ", strings.Join(cures, " && ")}
}

// walk follows a path as the kernel does and judges each element. It returns the last mode.
func (t trust) walk(path string) ([]flaw, fs.FileMode, error) {
	var flaws []flaw
	var last fs.FileMode
	at, links := "/", 0
	for rest := strings.Split(path, "/"); len(rest) > 0; { // the first name is "": the root itself
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		info, err := t.lstat(next)
		if err != nil {
			return nil, 0, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at, last = next, info.Mode()
			if f, ok := t.judge(next, info); !ok && !slices.Contains(flaws, f) {
				flaws = append(flaws, f)
			}
			continue
		}
		if links++; links > 40 { // Linux's limit in one path (path_resolution(7))
			return nil, 0, &fs.PathError{Op: "readlink", Path: path, Err: syscall.ELOOP}
		}
		target, err := t.readlink(next)
		if err != nil {
			return nil, 0, err
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return flaws, last, nil
}

// judge reports whether only root (or the caller) can change a file or directory.
func (t trust) judge(path string, info fs.FileInfo) (flaw, bool) {
	user, mode := int(info.Sys().(*syscall.Stat_t).Uid), info.Mode()
	foreign := user != 0 && user != t.caller
	writable, sticky := mode.Perm()&0o022 != 0, mode&fs.ModeSticky != 0
	if !foreign && (!writable || info.IsDir() && sticky && t.caller != 0) {
		return flaw{}, true
	}
	var f flaw
	switch {
	case foreign:
		f.why = fmt.Sprintf("%s belongs to user %d", path, user)
	case mode.Perm()&0o002 != 0:
		f.why = fmt.Sprintf("%s can be changed by every user (mode %s)", path, octal(mode))
	default:
		f.why = fmt.Sprintf("%s can be changed by its group (mode %s)", path, octal(mode))
	}
	if !info.IsDir() || !sticky && (!foreign || ofSystem(path)) {
		f.cure = "chmod go-w " + ShellWord(path)
		if foreign {
			f.cure = "chown root:root " + ShellWord(path) + " && " + f.cure
		}
	}
	return f, false
}

// ofSystem reports whether a directory should belong to root on any machine.
func ofSystem(dir string) bool {
	tops := []string{"/etc", "/opt", "/root", "/run", "/usr", "/var"}
	return dir == "/" || slices.ContainsFunc(tops, func(top string) bool { return inside(dir, top) })
}

// copyCommand returns the command that copies a file to a place that only root can change: a
// program to the administrator's programs, anything else to the agent's configuration.
func copyCommand(path string, mode fs.FileMode) string {
	if mode.Perm()&0o111 != 0 {
		return "install -m 755 " + ShellWord(path) + " /usr/local/bin/"
	}
	return "install -D -m 600 -t /etc/aks-flex-node " + ShellWord(path)
}

// octal formats a mode for chmod(1).
func octal(mode fs.FileMode) string {
	n := uint32(mode.Perm())
	if mode&fs.ModeSticky != 0 {
		n |= 0o1000
	}
	return fmt.Sprintf("%04o", n)
}

// ShellWord quotes a path for a shell, if needed.
func ShellWord(path string) string {
	if isAbs(path) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
