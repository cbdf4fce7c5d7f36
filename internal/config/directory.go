package config

import (
	"fmt"
	"slices"
	"strings"
)

// isDir reports whether s can be a directory of the node. Some are removed with all that is in them
// by unbootstrap, so that none may be one that the system or others have their files in.
func isDir(s string) bool {
	for _, alive := range []string{"/proc", "/sys", "/dev", "/boot"} {
		if inside(s, alive) {
			return false
		}
	}
	return isAbs(s) && strings.Count(s, "/") > 1 && !slices.Contains([]string{
		"/etc/systemd", "/etc/systemd/system", "/etc/sysctl.d", "/etc/modules-load.d", "/etc/ssl",
		"/etc/containerd",
		"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/share",
		"/usr/local", "/usr/local/bin", "/usr/local/sbin", "/usr/local/lib",
		"/var/lib", "/var/log", "/var/cache", "/var/spool", "/var/tmp", "/var/run", "/var/mail",
		"/var/opt", "/run/systemd", "/run/lock", "/lib/systemd",
	}, s)
}

// ownDirs are the directories that this program uses under fixed names.
var ownDirs = []string{
	"/etc/aks-flex-node", "/var/lib/aks-flex-node", "/run/aks-flex-node", "/opt/aks-flex-node",
	"/var/lib/containerd", "/run/containerd", "/etc/containerd", "/etc/node-problem-detector",
}

// checkDirs keeps directories apart that must not be one another's, nor contain one another.
func checkDirs(c Config, r *report) {
	var before []leaf
	for _, l := range leaves(&c) {
		if l.must != "dir" && l.must != "own-dir" || r.spoiled(l.path) {
			continue
		}
		dir := l.text()
		for _, own := range ownDirs {
			if overlap(dir, own) {
				r.add(l.path, show(dir), "must lie apart from "+own+", which is in use already")
			}
		}
		for _, other := range before {
			alone := l.must == "own-dir" || other.must == "own-dir"
			clash := dir == other.text() || alone && overlap(dir, other.text())
			if clash && !r.spoiled(other.path) {
				r.add(l.path, show(dir),
					fmt.Sprintf("must lie apart from %s (%s)", other.path, other.text()))
			}
		}
		before = append(before, l)
	}
}

func overlap(a, b string) bool { return inside(a, b) || inside(b, a) }

// inside reports whether a clean path is dir or below it.
func inside(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/')
}
