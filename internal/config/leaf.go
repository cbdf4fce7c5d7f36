package config

import (
	"reflect"
	"slices"
	"strconv"
)

// leaf is one setting of a configuration: a string, number or boolean, or a whole map.
type leaf struct {
	// path is the setting's own path, pattern the same with "*" for every name in a map and every
	// index.
	path, pattern string
	value         reflect.Value
}

// leaves lists the settings of a configuration in the order of its fields; sections that are absent
// have none.
func leaves(v reflect.Value, path, pattern string) []leaf {
	return appendLeaves(make([]leaf, 0, 128), v, path, pattern)
}

func appendLeaves(list []leaf, v reflect.Value, path, pattern string) []leaf {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return appendLeaves(list, v.Elem(), path, pattern)
		}
	case reflect.Struct:
		for _, f := range fields(v.Type()) {
			at := member(path, f.name)
			general := at // outside of maps and lists they are the same
			if path != pattern || !plain(f.name) {
				general = join(pattern, f.name)
			}
			list = appendLeaves(list, v.Field(f.index), at, general)
		}
	case reflect.Map:
		list = append(list, leaf{path, pattern, v})
		for _, name := range names(v) {
			next := v.MapIndex(reflect.ValueOf(name))
			list = appendLeaves(list, next, member(path, name), join(pattern, "*"))
		}
	case reflect.Slice:
		for i := range v.Len() {
			list = appendLeaves(list, v.Index(i), item(path, i), join(pattern, "*"))
		}
	default:
		list = append(list, leaf{path, pattern, v})
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

// text is a setting as its rule reads it.
func (l leaf) text() string {
	switch l.value.Kind() {
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
