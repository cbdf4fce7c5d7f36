package release

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/mod/semver"
)

const aVersion = `v?(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})` +
	`(?:-([0-9A-Za-z]+(?:[.-][0-9A-Za-z]+)*))?`

var (
	aSemver = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\A` + aVersion + `\z`)
	})
	aServerVersion = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(
			`\Av?([0-9]{1,6})\.([0-9]{1,6})(?:\.([0-9]{1,6}))?` +
				`(?:-((?:alpha|beta|rc)[0-9A-Za-z.-]*)(?:\+.*)?|[^0-9.].*)?\z`)
	})
)

// Version is a semantic version.
type Version struct {
	Major, Minor, Patch int
	// Pre is what makes it a pre-release, such as rc.1; "" is a release.
	Pre string
}

// releaseOf is a version that is a release.
func releaseOf(major, minor, patch int) Version { return Version{major, minor, patch, ""} }

// Parse reads a semantic version, with or without a leading "v".
func Parse(s string) (Version, bool) { return read(aSemver(), s) }

// ParseServer reads what an API server says of itself, which vendors spell differently: v1.34.4,
// 1.34.4+build, 1.34. What a vendor adds (1.34.4-eks-1) makes no pre-release of it; alpha, beta and
// rc, which Kubernetes itself has, do.
func ParseServer(s string) (Version, bool) { return read(aServerVersion(), s) }

func read(form *regexp.Regexp, s string) (Version, bool) {
	m := form.FindStringSubmatch(s)
	if m == nil {
		return Version{}, false
	}
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1]) // what is left out is 0
	}
	return Version{n[0], n[1], n[2], m[len(n)+1]}, true
}

// Bare strips the leading "v" of a version; anything else is returned unchanged.
func Bare(s string) string {
	if _, ok := Parse(s); ok {
		return strings.TrimPrefix(s, "v")
	}
	return s
}

// Compare orders versions: by their numbers, and a pre-release before its release.
func (v Version) Compare(other Version) int {
	return cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor),
		cmp.Compare(v.Patch, other.Patch), semver.Compare(of(v.Pre), of(other.Pre)))
}

// of is a version with a pre-release and with no numbers to compare.
func of(pre string) string {
	if pre == "" {
		return "v0.0.0"
	}
	return "v0.0.0-" + pre
}

// line is the release branch of a version, its patch left out.
func (v Version) line() Version { return releaseOf(v.Major, v.Minor, 0) }

// String writes a version without "v".
func (v Version) String() string {
	numbers := fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
	if v.Pre == "" {
		return numbers
	}
	return numbers + "-" + v.Pre
}
