// Package release holds the known releases of a node's components: the digests of the pinned ones
// (pins.txt), and which versions work together (table.go). It is pure: it reads no files and makes
// no requests. The configuration takes its defaults and rules from it, the agent its digests, and
// the resource provider the versions that an owner leaves open.
package release

import (
	"cmp"
	_ "embed"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/version"
)

// Pin is a published file's digest: SHA-256, or SHA-512 where the project publishes nothing else.
type Pin struct {
	// Name is the artifact's name in artifacts.overrides; Version has no leading "v".
	Name, Version, Arch, Digest string
	Size                        int64 // length of the file in bytes; 0 if unknown
}

// pins holds the digests of the pinned releases: name, version, architecture, digest, and the
// length if known. Each digest comes from a list of published release checksums or from the
// project's own checksum file; none was computed here. `make pins` adds releases.
//
//go:embed pins.txt
var pins string

// Key returns the key of an artifact's version in artifacts.overrides, without "v": kubelet@1.36.3.
func Key(name, version string) string { return name + "@" + version }

// Names returns the artifacts that can be pinned, in the order of pins.txt.
func Names() []string {
	return []string{"kubelet", "kubectl", "kubeadm", "containerd", "runc", "cni-plugins",
		"node-problem-detector"}
}

// parsed returns the pins in the order of pins.txt: newest version of each artifact first.
var parsed = sync.OnceValue(func() []Pin {
	var list []Pin
	for line := range strings.Lines(strings.TrimSpace(pins)) {
		f := strings.Fields(line)
		p := Pin{Name: f[0], Version: f[1], Arch: f[2], Digest: f[3]}
		if len(f) > 4 {
			p.Size, _ = strconv.ParseInt(f[4], 10, 64) // genpins wrote it
		}
		list = append(list, p)
	}
	return list
})

// Pins returns all pins by artifact, newest version first, then architecture.
func Pins() []Pin { return slices.Clone(parsed()) }

// Pinning returns the pin of a published file, or the zero Pin.
func Pinning(name, version, arch string) Pin {
	for _, p := range parsed() {
		if p.Name == name && p.Version == version && p.Arch == arch {
			return p
		}
	}
	return Pin{}
}

// Pinned returns the pinned versions of an artifact, newest first, which must not be changed. Each
// is pinned for every architecture, as genpins checks.
func Pinned(name string) []string { return pinned()[name] }

var pinned = sync.OnceValue(func() map[string][]string {
	versions := map[string][]string{}
	for _, p := range parsed() {
		if p.Arch == "amd64" {
			versions[p.Name] = append(versions[p.Name], p.Version)
		}
	}
	return versions
})

var aServerVersion = regexp.MustCompile(`\Av?([0-9]{1,6})\.([0-9]{1,6})(?:\.([0-9]{1,6}))?` +
	`(?:-((?:alpha|beta|rc)[0-9A-Za-z.-]*)(?:\+.*)?|[^0-9.].*)?\z`)

// Version is a semantic version.
type Version struct {
	Major, Minor, Patch int
	Pre                 string // the pre-release part, such as rc.1; "" for a release
}

func releaseOf(major, minor, patch int) Version { return Version{major, minor, patch, ""} }

// Parse parses a semantic version without build metadata, with or without a leading "v".
func Parse(s string) (Version, bool) {
	s = strings.TrimPrefix(s, "v")
	if s == "" {
		return Version{}, false
	}
	var v Version
	if n := strings.Split(s, "."); len(n) == 3 { // the usual case, in a fraction of the time
		v.Major, _ = strconv.Atoi(n[0])
		v.Minor, _ = strconv.Atoi(n[1])
		v.Patch, _ = strconv.Atoi(n[2])
	}
	if min(v.Major, v.Minor, v.Patch) < 0 || v.String() != s {
		is, err := version.ParseSemantic(s)
		if err != nil {
			return Version{}, false
		}
		v = Version{int(is.Major()), int(is.Minor()), int(is.Patch()), is.PreRelease()}
	}
	return v, v.String() == s && max(v.Major, v.Minor, v.Patch) < 1_000_000
}

// ParseServer parses the version that an API server reports, which vendors spell differently:
// v1.34.4, 1.34.4+build, 1.34. A vendor's suffix (1.34.4-eks-1) does not make it a pre-release;
// alpha, beta and rc, which Kubernetes itself uses, do.
func ParseServer(s string) (Version, bool) {
	m := aServerVersion.FindStringSubmatch(s)
	if m == nil {
		return Version{}, false
	}
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1]) // a missing part is 0
	}
	return Parse(Version{n[0], n[1], n[2], m[len(n)+1]}.String())
}

// Bare strips the leading "v" of a version; anything else is returned unchanged.
func Bare(s string) string {
	if _, ok := Parse(s); ok {
		return strings.TrimPrefix(s, "v")
	}
	return s
}

// Compare orders versions by number, a pre-release before its release.
func (v Version) Compare(other Version) int {
	byNumber := cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor),
		cmp.Compare(v.Patch, other.Patch))
	if byNumber != 0 || v.Pre == other.Pre {
		return byNumber
	}
	order, _ := version.MustParseSemantic(v.String()).Compare(other.String()) // both are semantic
	return order
}

func (v Version) line() Version { return releaseOf(v.Major, v.Minor, 0) }

// String formats a version without "v".
func (v Version) String() string {
	text := strconv.Itoa(v.Major) + "." + strconv.Itoa(v.Minor) + "." + strconv.Itoa(v.Patch)
	if v.Pre != "" {
		text += "-" + v.Pre
	}
	return text
}
