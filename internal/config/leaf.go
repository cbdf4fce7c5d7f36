package config

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
)

// leaf is one setting of a configuration: a string, number or boolean, or a whole map.
type leaf struct {
	path string
	// pattern is the path with "*" for every name in a map and every index of a list.
	pattern string
	value   reflect.Value
}

// leaves lists the settings of a configuration in the order of its fields; sections that are absent
// have none.
func leaves(c *Config) []leaf { return leavesIn(nil, "", "", reflect.ValueOf(c).Elem()) }

func leavesIn(list []leaf, path, pattern string, v reflect.Value) []leaf {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			list = leavesIn(list, path, pattern, v.Elem())
		}
	case reflect.Struct:
		for i, f := range fields(v.Type()) {
			list = leavesIn(list, member(path, f.name), member(pattern, f.name), v.Field(i))
		}
	case reflect.Map:
		list = append(list, leaf{path, pattern, v})
		for name, next := range entries(v) {
			list = leavesIn(list, member(path, name), pattern+".*", next)
		}
	case reflect.Slice:
		for i := range v.Len() {
			list = leavesIn(list, item(path, i), pattern+".*", v.Index(i))
		}
	default:
		list = append(list, leaf{path, pattern, v})
	}
	return list
}

// entries iterates over a map in the order of its names.
func entries(v reflect.Value) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int {
			return strings.Compare(a.String(), b.String())
		})
		for _, name := range names {
			if !yield(name.String(), v.MapIndex(name)) {
				return
			}
		}
	}
}

// text returns the setting as its rule reads it.
func (l leaf) text() string {
	switch l.value.Kind() {
	case reflect.Map:
		return ""
	case reflect.String:
		return l.value.String()
	}
	return fmt.Sprint(l.value)
}

// shown returns the setting as a problem shows it.
func (l leaf) shown() string {
	switch {
	case l.value.Kind() != reflect.String:
		return l.text()
	case l.value.Type() == reflect.TypeFor[Secret]():
		return redacted
	}
	return show(l.value.String())
}
