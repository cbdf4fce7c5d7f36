package release

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	numbers, pre, isPre := strings.Cut(strings.TrimPrefix(s, "v"), "-")
	parts := strings.Split(numbers, ".")
	var n [3]int
	if len(parts) != len(n) || isPre && !validPre(pre) {
		return Version{}, false
	}
	for i, part := range parts {
		if !isNumber(part) || !validPre(part) || len(part) > 6 {
			return Version{}, false
		}
		n[i], _ = strconv.Atoi(part)
	}
	return Version{n[0], n[1], n[2], pre}, true
}

// validPre reports whether each identifier of a pre-release is valid: it has letters, digits and
// hyphens, and as a number no leading zero (https://semver.org, 9).
func validPre(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || strings.Trim(part, digits+letters) != "" ||
			part[0] == '0' && len(part) > 1 && isNumber(part) {
			return false
		}
	}
	return true
}

const digits, letters = "0123456789", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-"

func isNumber(s string) bool { return s != "" && strings.Trim(s, digits) == "" }

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
	byNumber := cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor),
		cmp.Compare(v.Patch, other.Patch))
	if byNumber != 0 || v.Pre == other.Pre {
		return byNumber
	}
	if v.Pre == "" || other.Pre == "" {
		return cmp.Compare(len(other.Pre), len(v.Pre))
	}
	return slices.CompareFunc(strings.Split(v.Pre, "."), strings.Split(other.Pre, "."), comparePart)
}

// comparePart orders identifiers of pre-releases: numbers come first (https://semver.org, 11).
func comparePart(a, b string) int {
	switch number := isNumber(a); {
	case number != isNumber(b) && number:
		return -1
	case number != isNumber(b):
		return 1
	case number:
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	}
	return cmp.Compare(a, b)
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
