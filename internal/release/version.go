package release

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/mod/semver"
)

var aServerVersion = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\Av?([0-9]{1,6})\.([0-9]{1,6})(?:\.([0-9]{1,6}))?` +
		`(?:-((?:alpha|beta|rc)[0-9A-Za-z.-]*)(?:\+.*)?|[^0-9.].*)?\z`)
})

// Version is a semantic version.
type Version struct {
	Major, Minor, Patch int
	// Pre is the pre-release part, such as rc.1; "" is a release.
	Pre string
}

// releaseOf is a version that is a release.
func releaseOf(major, minor, patch int) Version { return Version{major, minor, patch, ""} }

// Parse reads a semantic version without build metadata, with or without a leading "v".
// Each PUT of a node reads dozens, so it uses no regular expression.
func Parse(s string) (Version, bool) {
	s = strings.TrimPrefix(s, "v")
	if semver.Canonical("v"+s) != "v"+s {
		return Version{}, false
	}
	numbers, pre, _ := strings.Cut(s, "-")
	var n [3]int
	for i, number := range strings.Split(numbers, ".") {
		value, err := strconv.Atoi(number)
		if err != nil || len(number) > 6 {
			return Version{}, false
		}
		n[i] = value
	}
	return Version{n[0], n[1], n[2], pre}, true
}

// ParseServer reads what an API server says of itself, which vendors spell differently: v1.34.4,
// 1.34.4+build, 1.34. What a vendor adds (1.34.4-eks-1) makes no pre-release of it; alpha, beta and
// rc, which Kubernetes itself has, do.
func ParseServer(s string) (Version, bool) {
	m := aServerVersion().FindStringSubmatch(s)
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
	return semver.Compare("v"+v.String(), "v"+other.String())
}

// line is the release branch of a version, its patch left out.
func (v Version) line() Version { return releaseOf(v.Major, v.Minor, 0) }

// String writes a version without "v".
func (v Version) String() string {
	text := fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
	if v.Pre != "" {
		text += "-" + v.Pre
	}
	return text
}
