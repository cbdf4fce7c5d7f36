package deb

import (
	"regexp"
	"strings"
	"time"
)

var (
	// released matches the output of git describe after a tag: v1.2.3, v1.2.3-rc.1, v1.2.3-4-gabcdef0.
	released = regexp.MustCompile(
		`^v?([0-9]+\.[0-9]+\.[0-9]+)(-[0-9A-Za-z.]+?)??(-[0-9]+-g[0-9a-f]+)?$`)
	allowed = regexp.MustCompile(`[^0-9A-Za-z.+~]+`)
)

// Version returns a version that Debian orders correctly: 1.2.3~rc.1 before 1.2.3, 1.2.3+4.gabcdef0
// after it, and a build without a version before all, ordered by time.
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
