package config

import (
	"reflect"
	"slices"
	"strings"
	"sync"
)

// rule says what one setting may be. The same words are in the problem and in
// docs/configuration.md.
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

// rulesByPattern are the rules by setting.
var rulesByPattern = sync.OnceValue(func() map[string]rule {
	byPattern := map[string]rule{}
	for _, rule := range rules() {
		byPattern[rule.pattern] = rule
	}
	return byPattern
})

// applyRules checks every setting by itself. What is not set is left to the checks of what is
// required.
func applyRules(c *Config, r *report) {
	byPattern := rulesByPattern()
	for _, l := range leaves(reflect.ValueOf(c).Elem(), "", "") {
		rule := byPattern[l.pattern]
		switch {
		case rule.ok == nil || r.spoiled(l.path):
		case l.value.Kind() == reflect.Map:
			for _, name := range names(l.value) {
				if !rule.ok(name) {
					r.add(member(l.path, name), "", "every name here must be "+rule.allowed)
				}
			}
		default:
			text := l.text()
			if unset := text == "" && !strings.HasSuffix(l.pattern, "*"); !unset && !rule.ok(text) {
				r.add(l.path, l.shown(), "must be "+rule.allowed)
			}
		}
	}
}
