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

var aServerVersion = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\Av?([0-9]{1,6})\.([0-9]{1,6})(?:\.([0-9]{1,6}))?` +
		`(?:-((?:alpha|beta|rc)[0-9A-Za-z.-]*)(?:\+.*)?|[^0-9.].*)?\z`)
})

// Version is a semantic version.
type Version struct {
	Major, Minor, Patch int
	// Pre is what makes it a pre-release, such as rc.1; "" is a release.
	Pre string
}

// releaseOf is a version that is a release.
func releaseOf(major, minor, patch int) Version { return Version{major, minor, patch, ""} }

// Parse reads a semantic version, with or without a leading "v".
// Each PUT of a node reads dozens, so it uses no regular expression.
func Parse(s string) (Version, bool) {
	numbers, pre, isPre := strings.Cut(strings.TrimPrefix(s, "v"), "-")
	var n [3]int
	for i := range n {
		number, rest, more := strings.Cut(numbers, ".")
		value, err := strconv.ParseUint(number, 10, 32)
		padded := len(number) > 1 && number[0] == '0'
		if err != nil || len(number) > 6 || padded || more != (i < len(n)-1) {
			return Version{}, false
		}
		n[i], numbers = int(value), rest
	}
	if isPre && !isPreRelease(pre) {
		return Version{}, false
	}
	return Version{n[0], n[1], n[2], pre}, true
}

// isPreRelease reports whether a text is words of letters and digits with "." or "-" in between.
func isPreRelease(s string) bool {
	for word := range strings.SplitSeq(strings.ReplaceAll(s, "-", "."), ".") {
		if word == "" || strings.Trim(word, alphanumeric) != "" {
			return false
		}
	}
	return true
}

const alphanumeric = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

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
	numbers := cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor),
		cmp.Compare(v.Patch, other.Patch))
	if numbers != 0 || v.Pre == other.Pre {
		return numbers
	}
	return semver.Compare("v"+v.String(), "v"+other.String())
}

// line is the release branch of a version, its patch left out.
func (v Version) line() Version { return releaseOf(v.Major, v.Minor, 0) }

// String writes a version without "v".
func (v Version) String() string {
	text := fmt.Sprintf("%d.%d.%d-%s", v.Major, v.Minor, v.Patch, v.Pre)
	return strings.TrimSuffix(text, "-") // a release has nothing behind it
}
