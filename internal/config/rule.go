package config

import (
	"reflect"
	"slices"
	"strings"
	"sync"
)

// rule says what one setting may be. The same words are in the problem and in
// docs/CONFIGURATION.md.
type rule struct {
	// pattern is the setting: its path with "*" for any name in a map and any index of a list.
	pattern string
	// allowed completes "must be ..." (for the names in a map: "every name must be ...").
	allowed string
	// ok tells whether a value is allowed; nil when the setting is checked elsewhere.
	ok func(string) bool
}

// rules are the rules of every setting that is not just true or false. They are made once.
var rules = sync.OnceValue(func() []rule {
	return slices.Concat(azureRules(), arcRules(), versionRules(), nodeRules(), kubeletRules(),
		pathRules(), networkRules(), agentRules())
})

// applyRules checks every setting by itself. What is not set is left to the checks of what is
// required; what is as by default is allowed.
func applyRules(c *Config, r *report) { eachLeaf(c, r.applyRule) }

func (r *report) applyRule(l leaf) {
	switch {
	case l.rule.ok == nil:
	case l.value.Kind() == reflect.Map:
		for _, name := range names(l.value) {
			if !l.rule.ok(name) && !r.spoiled(l.path()) {
				r.add(member(l.path(), name), "", "every name here must be "+l.rule.allowed)
			}
		}
	default:
		text := l.text()
		unset := text == "" && !strings.HasSuffix(l.pattern, "*")
		usual := text != "" && text == l.usual
		if !unset && !usual && !l.isAllowed(text) && !r.spoiled(l.path()) {
			r.add(l.path(), l.shown(), "must be "+l.rule.allowed)
		}
	}
}
