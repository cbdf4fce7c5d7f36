package config

import (
	"iter"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// spot is where settings are in every configuration.
type spot struct {
	// pattern is the path with "*" for every name in a map and every index of a list.
	pattern string
	// fields are those of a struct, in their order; item is what all of a map or list have.
	fields []*spot
	item   *spot
	rule   rule
	// usual is the default, as text; "" for none. It needs no check.
	usual string
	// allowed is what a rule has allowed last, never a secret or what there are several of: most
	// settings of a fleet's nodes are equal.
	allowed atomic.Pointer[string]
}

// spots is the spot of the whole configuration. It is made once.
var spots = sync.OnceValue(func() *spot {
	byPattern := map[string]rule{}
	for _, rule := range rules() {
		byPattern[rule.pattern] = rule
	}
	whole := newSpot(reflect.TypeFor[Config](), "", byPattern)
	whole.each(reflect.ValueOf(defaults()), nil, func(l leaf) { l.usual = l.text() })
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
		p.item = newSpot(t.Elem(), join(pattern, "*"), rules)
	}
	return p
}

// leaf is one setting of a configuration: a string, number or boolean, or a whole map.
type leaf struct {
	*spot
	value reflect.Value
	// turns are in place of the "*" of the pattern.
	turns trail
}

// leaves lists the settings of a configuration in the order of its fields; sections that are absent
// have none.
func leaves(c *Config) []leaf {
	var list []leaf
	eachLeaf(c, func(l leaf) {
		l.turns = slices.Clone(l.turns)
		list = append(list, l)
	})
	return list
}

// eachLeaf calls see with each of the leaves. Their turns are gone when it returns.
func eachLeaf(c *Config, see func(leaf)) {
	spots().each(reflect.ValueOf(c), make(trail, 0, 4), see)
}

func (p *spot) each(v reflect.Value, turns trail, see func(leaf)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			p.each(v.Elem(), turns, see)
		}
	case reflect.Struct:
		for i, f := range fields(v.Type()) {
			p.fields[i].each(v.Field(f.index), turns, see)
		}
	case reflect.Map:
		see(leaf{p, v, turns})
		for name, next := range entries(v) {
			p.item.each(next, append(turns, turn{name: name}), see)
		}
	case reflect.Slice:
		for i := range v.Len() {
			p.item.each(v.Index(i), append(turns, turn{index: i, inList: true}), see)
		}
	default:
		see(leaf{p, v, turns})
	}
}

func join(pattern, name string) string {
	if pattern == "" {
		return name
	}
	return pattern + "." + name
}

// names lists the names in a map, in order.
func names(v reflect.Value) []string {
	if m, ok := v.Interface().(map[string]string); ok { // as most are
		return slices.Sorted(maps.Keys(m))
	}
	list := make([]string, 0, v.Len())
	name := reflect.New(v.Type().Key()).Elem()
	for at := v.MapRange(); at.Next(); {
		name.SetIterKey(at)
		list = append(list, name.String())
	}
	slices.Sort(list)
	return list
}

// entries goes over a map in the order of its names.
func entries(v reflect.Value) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		if v.Len() == 0 {
			return
		}
		key := reflect.New(v.Type().Key()).Elem()
		for _, name := range names(v) {
			key.SetString(name)
			if !yield(name, v.MapIndex(key)) {
				return
			}
		}
	}
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

// isAllowed tells whether the setting's rule allows it as it is.
func (l leaf) isAllowed(text string) bool {
	if last := l.allowed.Load(); last != nil && *last == text {
		return true
	}
	ok := l.rule.ok(text)
	if ok && len(l.turns) == 0 && l.value.Type() != reflect.TypeFor[Secret]() {
		kept := text // so that only what is kept is moved to the heap
		l.allowed.Store(&kept)
	}
	return ok
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
