package flexnode

import (
	"regexp"
	"sync"
)

const guid = `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`

// matches makes a check of a regular expression that must match the whole value. The expression is
// compiled once, when it is first used.
func matches(pattern string) func(string) bool {
	whole := sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\A(?:` + pattern + `)\z`)
	})
	return func(s string) bool { return whole().MatchString(s) }
}

var (
	isGUID          = matches(guid)
	isLocation      = matches(`[A-Za-z0-9][A-Za-z0-9 ]{0,62}`)
	isFileName      = matches(`[A-Za-z0-9][A-Za-z0-9._-]{0,252}`)
	isServerURL     = matches(`https://[A-Za-z0-9.:\[\]-]+/?`)
	isConfigVersion = matches(`[0-9]{0,19}`)
	isConditionType = matches(`[A-Za-z]([A-Za-z0-9]{0,62})?`)
)
