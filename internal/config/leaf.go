package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// leaf is one setting of a configuration: a string, number or boolean, or a whole map.
type leaf struct {
	path string
	// item is true for an item of a list or map.
	item  bool
	value reflect.Value
	// must and keys are the names of its rules (see rules).
	must, keys string
}

// leaves lists a configuration's settings in the order of fields; absent sections have none.
func leaves(c *Config) []leaf { return leavesAt(nil, leaf{value: reflect.ValueOf(c)}) }

func leavesAt(list []leaf, at leaf) []leaf {
	v := at.value
	switch v.Kind() {
	case reflect.Pointer:
		if at.value = v.Elem(); !v.IsNil() {
			list = leavesAt(list, at)
		}
	case reflect.Struct:
		for i, f := range fields(v.Type()) {
			list = leavesAt(list, leaf{member(at.path, f.name), false, v.Field(i), f.must, f.keys})
		}
	case reflect.Map:
		list = append(list, at)
		for name, next := range v.Seq2() {
			list = leavesAt(list, leaf{member(at.path, name.String()), true, next, at.must, ""})
		}
	case reflect.Slice:
		for i := range v.Len() {
			list = leavesAt(list, leaf{item(at.path, i), true, v.Index(i), at.must, ""})
		}
	default:
		list = append(list, at)
	}
	return list
}

// rule is that of the setting, or of the names in a map.
func (l leaf) rule() rule {
	if l.value.Kind() == reflect.Map {
		return rules[l.keys]
	}
	return rules[l.must]
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

// member is the path of a member of the object at path: a.b for plain names, a["b.c"] for others.
func member(path, name string) string {
	switch {
	case !plain(name):
		return path + "[" + show(name) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

// plain reports whether a name needs no quotes in a path: letters, digits, "_", no digit first.
func plain(name string) bool {
	special := func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	return name != "" && strings.IndexFunc(name, special) < 0 && (name[0] < '0' || name[0] > '9')
}

// item is the path of an item of the list at path.
func item(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
