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
	// ok reports whether a value is allowed; nil when the setting is checked elsewhere.
	ok func(string) bool
}

// rules are the rules of every setting that is not just true or false. They are made once.
var rules = sync.OnceValue(func() []rule {
	return slices.Concat(azureRules(), arcRules(), versionRules(), nodeRules(), kubeletRules(),
		pathRules(), networkRules(), agentRules())
})

// rulesByPattern finds the rule of a setting. It is made once.
var rulesByPattern = sync.OnceValue(func() map[string]rule {
	found := map[string]rule{}
	for _, rule := range rules() {
		found[rule.pattern] = rule
	}
	return found
})

// applyRules checks every setting by itself. What is not set is left to the checks of what is
// required.
func applyRules(c *Config, r *report) {
	for _, l := range leaves(c) {
		rule := rulesByPattern()[l.pattern]
		switch text := l.text(); {
		case rule.ok == nil:
		case l.value.Kind() == reflect.Map:
			for name := range entries(l.value) {
				if !rule.ok(name) && !r.spoiled(l.path) {
					r.add(member(l.path, name), "", "every name here must be "+rule.allowed)
				}
			}
		case text == "" && !strings.HasSuffix(l.pattern, "*"):
		case !rule.ok(text) && !r.spoiled(l.path):
			r.add(l.path, l.shown(), "must be "+rule.allowed)
		}
	}
}
