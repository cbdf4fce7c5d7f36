package deb

import (
	"regexp"
	"strings"
	"time"
)

var (
	// released is a version as `git describe` gives it after a tag: v1.2.3, v1.2.3-rc.1,
	// v1.2.3-4-gabcdef0.
	released = regexp.MustCompile(
		`^v?([0-9]+\.[0-9]+\.[0-9]+)(-[0-9A-Za-z.]+?)??(-[0-9]+-g[0-9a-f]+)?$`)
	allowed = regexp.MustCompile(`[^0-9A-Za-z.+~]+`)
)

// Version is a version as Debian orders them: before 1.2.3 comes 1.2.3~rc.1, after it comes
// 1.2.3+4.gabcdef0, and what has no version comes first, in the order of time.
func Version(version string, built time.Time) string {
	clean, dirty := strings.CutSuffix(version, "-dirty")
	v := ""
	if m := released.FindStringSubmatch(clean); m != nil {
		v = m[1]
		if m[2] != "" {
			v += "~" + m[2][1:]
		}
		v += strings.ReplaceAll(strings.Replace(m[3], "-", "+", 1), "-", ".")
	} else {
		v = "0.0.0~" + built.UTC().Format("20060102150405") + "." + allowed.ReplaceAllString(clean, ".")
	}
	if dirty {
		v += "+dirty"
	}
	return v
}
