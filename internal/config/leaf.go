package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// spot is where settings are in every configuration.
type spot struct {
	// pattern is the path with "*" for every name in a map and every index of a list.
	pattern string
	// fields are those of a struct, in their order; each is what all of a map or list have.
	fields []*spot
	each   *spot
	rule   rule
	// usual is the default, as text; "" for none. It needs no check.
	usual string
}

// spots is the spot of the whole configuration. It is made once.
var spots = sync.OnceValue(func() *spot {
	byPattern := map[string]rule{}
	for _, rule := range rules() {
		byPattern[rule.pattern] = rule
	}
	whole := newSpot(reflect.TypeFor[Config](), "", byPattern)
	for _, l := range whole.leaves(nil, reflect.ValueOf(defaults()), nil) {
		l.usual = l.text()
	}
	return whole
})

func newSpot(t reflect.Type, pattern string, rules map[string]rule) *spot {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	p := &spot{pattern: pattern, rule: rules[pattern]}
	switch t.Kind() {
	case reflect.Struct:
		for _, f := range fields(t) {
			p.fields = append(p.fields, newSpot(t.Field(f.index).Type, join(pattern, f.name), rules))
		}
	case reflect.Map, reflect.Slice:
		p.each = newSpot(t.Elem(), join(pattern, "*"), rules)
	}
	return p
}

// leaf is one setting of a configuration: a string, number or boolean, or a whole map.
type leaf struct {
	*spot
	value reflect.Value
	// turns are in place of the "*" of the pattern.
	turns []turn
}

// leaves lists the settings of a configuration in the order of its fields; sections that are absent
// have none.
func leaves(c *Config) []leaf {
	return spots().leaves(make([]leaf, 0, 128), reflect.ValueOf(c), nil)
}

func (p *spot) leaves(list []leaf, v reflect.Value, turns []turn) []leaf {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return p.leaves(list, v.Elem(), turns)
		}
	case reflect.Struct:
		for i, f := range fields(v.Type()) {
			list = p.fields[i].leaves(list, v.Field(f.index), turns)
		}
	case reflect.Map:
		list = append(list, leaf{p, v, turns})
		for _, name := range names(v) {
			next := v.MapIndex(reflect.ValueOf(name))
			list = p.each.leaves(list, next, append(slices.Clip(turns), turn{name: name}))
		}
	case reflect.Slice:
		for i := range v.Len() {
			next := append(slices.Clip(turns), turn{index: i, inList: true})
			list = p.each.leaves(list, v.Index(i), next)
		}
	default:
		list = append(list, leaf{p, v, turns})
	}
	return list
}

func join(pattern, name string) string {
	if pattern == "" {
		return name
	}
	return pattern + "." + name
}

// names lists the names in a map, in order.
func names(v reflect.Value) []string {
	var list []string
	for _, key := range v.MapKeys() {
		list = append(list, key.String())
	}
	slices.Sort(list)
	return list
}

// path is that of the setting in its configuration.
func (l leaf) path() string {
	path, turns := "", l.turns
	for name := range strings.SplitSeq(l.pattern, ".") {
		if name != "*" {
			path = member(path, name)
			continue
		}
		path, turns = turns[0].in(path), turns[1:]
	}
	return path
}

// text is a setting as its rule reads it.
func (l leaf) text() string {
	switch l.value.Kind() {
	case reflect.Map:
		return ""
	case reflect.Int, reflect.Int64:
		return strconv.FormatInt(l.value.Int(), 10)
	case reflect.Bool:
		return strconv.FormatBool(l.value.Bool())
	}
	return l.value.String()
}

// shown is a setting as its problem shows it.
func (l leaf) shown() string {
	switch {
	case l.value.Kind() != reflect.String:
		return l.text()
	case l.value.Type() == reflect.TypeFor[Secret]():
		return redacted
	}
	return show(l.value.String())
}
