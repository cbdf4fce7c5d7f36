package release

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

const semver = `v?(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})` +
	`(?:-[0-9A-Za-z]+(?:[.-][0-9A-Za-z]+)*)?`

var (
	aSemver = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\A` + semver + `\z`)
	})
	aServerVersion = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(
			`\Av?([0-9]{1,6})\.([0-9]{1,6})(?:\.([0-9]{1,6}))?(?:[^0-9.].*)?\z`)
	})
)

// Version is the numbers of a semantic version.
type Version struct{ Major, Minor, Patch int }

// Parse reads a semantic version, with or without a leading "v".
func Parse(s string) (Version, bool) { return read(aSemver(), s) }

// ParseServer reads what an API server says of itself, which vendors spell differently: v1.34.4,
// 1.34.4+build, 1.34.
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
	return Version{n[0], n[1], n[2]}, true
}

// Bare strips the leading "v" of a version; anything else is returned unchanged.
func Bare(s string) string {
	if _, ok := Parse(s); ok {
		return strings.TrimPrefix(s, "v")
	}
	return s
}

// Compare orders versions by their numbers.
func (v Version) Compare(other Version) int {
	return cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor),
		cmp.Compare(v.Patch, other.Patch))
}

// line is the release branch of a version, its patch left out.
func (v Version) line() Version { return Version{v.Major, v.Minor, 0} }

// String writes a version without "v".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }
