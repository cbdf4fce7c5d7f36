package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// isHost reports whether s is a DNS name or an IP address (in URL form: IPv6 without brackets).
func isHost(s string) bool {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.Zone() == ""
	}
	return len(validation.IsDNS1123Subdomain(strings.ToLower(s))) == 0
}

// parseURL parses an absolute URL with a host; one with a query or fragment may hold a secret.
func parseURL(s string) (*url.URL, bool) {
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || !isHost(u.Hostname()) || strings.ContainsAny(s, "?#") {
		return nil, false
	}
	port := u.Port()
	if port == "" && strings.HasSuffix(u.Host, ":") || port != "" && !isWhole(port, 1, 65535) {
		return nil, false
	}
	return u, isURLPath(u.EscapedPath())
}

var isURLPath = matches(`[A-Za-z0-9._~/%+@:=-]*`)

// isHTTPS reports whether s is an https URL without user.
func isHTTPS(s string) bool {
	u, ok := parseURL(s)
	return ok && u.Scheme == "https" && u.User == nil
}

// isHTTPSHost reports whether s is an https URL of a host and perhaps a port, without a path.
func isHTTPSHost(s string) bool {
	u, ok := parseURL(s)
	return ok && u.Scheme == "https" && u.User == nil && strings.Trim(u.Path, "/") == ""
}

// isProxy reports whether s is the URL of a proxy; it may have user and password.
func isProxy(s string) bool {
	u, ok := parseURL(s)
	return ok && (u.Scheme == "http" || u.Scheme == "https") && strings.Trim(u.Path, "/") == ""
}

// isAddr reports whether s is a host's address: unicast, neither loopback nor link-local.
func isAddr(s string) bool {
	addr, err := netip.ParseAddr(s)
	return err == nil && addr.Zone() == "" && !addr.Is4In6() && addr.IsGlobalUnicast()
}

// isDNS reports whether s can be the DNS's address: a service's, or link-local, a cache's on each
// node.
func isDNS(s string) bool {
	addr, err := netip.ParseAddr(s)
	return isAddr(s) || (err == nil && addr.Is4() && addr.IsLinkLocalUnicast())
}

// isNodeIP reports whether s is one address, or one of each family.
func isNodeIP(s string) bool {
	first, second, two := strings.Cut(s, ",")
	if !two {
		return isAddr(s)
	}
	return isAddr(first) && isAddr(second) &&
		strings.Contains(first, ":") != strings.Contains(second, ":")
}

// isAbs reports whether s is a clean absolute path of characters that need no quoting anywhere.
func isAbs(s string) bool {
	return isPath(s) && path.Clean(s) == s
}

var isPath = matches(`/[A-Za-z0-9._+@/-]+`)

// isDir reports whether s can be a directory of the node. unbootstrap removes some with all that is
// in them, so none may be one of the system or of others.
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
