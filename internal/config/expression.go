package config

import (
	"regexp"
	"sync"
)

// expression is a regular expression that is compiled once, when it is first used: most settings of
// a configuration are not set, and most programs read few configurations.
func expression(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// matches makes a check of a regular expression that must match the whole value. What calls it is
// called once.
func matches(pattern string) func(string) bool {
	whole := expression(`\A(?:` + pattern + `)\z`)
	return func(s string) bool { return whole().MatchString(s) }
}
