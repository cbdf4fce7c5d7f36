package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// decode sets dst from v; problems are unknown members and wrong types. "" keeps the default.
func (r *report) decode(at spot, v any, dst reflect.Value) {
	if want := kindOfType(dst.Type()); kindOf(v) != want {
		r.add(at.path(), "", fmt.Sprintf("must be %s, not %s", want, kindOf(v)))
		return
	}
	if dst.Kind() == reflect.Pointer {
		dst.Set(reflect.New(dst.Type().Elem()))
		dst = dst.Elem()
	}
	switch v := v.(type) {
	case map[string]any:
		if dst.Kind() == reflect.Struct {
			r.members(at, v, dst)
		} else if len(v) > 0 {
			dst.Set(reflect.MakeMap(dst.Type()))
			above := at
			for name, next := range v {
				elem := reflect.New(dst.Type().Elem()).Elem()
				r.decode(spot{&above, name, false}, next, elem)
				dst.SetMapIndex(reflect.ValueOf(name), elem)
			}
		}
	case []any:
		if len(v) > 0 {
			dst.Set(reflect.MakeSlice(dst.Type(), len(v), len(v)))
		}
		above := at
		for i, next := range v {
			r.decode(spot{&above, strconv.Itoa(i), true}, next, dst.Index(i))
		}
	case bool:
		dst.SetBool(v)
	case json.Number:
		n, err := strconv.ParseInt(v.String(), 10, dst.Type().Bits())
		if err != nil {
			r.add(at.path(), cut(v.String()), "must be a whole number")
			return
		}
		dst.SetInt(n)
	case string:
		if v != "" {
			dst.SetString(v)
		}
	}
}

var kinds = map[reflect.Kind]kind{
	reflect.Struct: anObject, reflect.Map: anObject, reflect.Slice: aList, reflect.Bool: aBoolean,
	reflect.Int: aNumber, reflect.Int64: aNumber, reflect.String: aString,
}

func kindOfType(t reflect.Type) kind {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return kinds[t.Kind()]
}

// members reads an object; a null member is unset.
func (r *report) members(at spot, o map[string]any, dst reflect.Value) {
	known, found := fields(dst.Type()), 0
	for i, f := range known {
		v, given := o[f.name]
		if !given {
			continue
		}
		found++
		to := dst.Field(i)
		if v != nil {
			r.decode(spot{&at, f.name, false}, v, to)
		}
		if list, ok := v.([]any); ok && len(list) == 0 && f.empties {
			to.Set(reflect.MakeSlice(to.Type(), 0, 0))
		}
	}
	if found == len(o) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if !slices.ContainsFunc(known, func(f field) bool { return f.name == name }) {
			r.unknown(at.path(), name, known)
		}
	}
}

// unknown reports an unknown member: only a warning in a bundle of a provider. It suggests a
// setting of that name elsewhere, else the known members of the object.
func (r *report) unknown(path, name string, known []field) {
	at := member(path, name)
	if r.newer {
		r.warn(at, "is not known to this agent and has no effect: update the agent")
		return
	}
	if elsewhere := find(reflect.TypeFor[Config](), "", name); r.what == "" && len(elsewhere) > 0 {
		r.add(at, "", fmt.Sprintf("is not known here: is %s meant?", strings.Join(elsewhere, " or ")))
		return
	}
	r.add(at, "", "is not known; known names: "+strings.Join(r.names(path, known), ", "))
}

type field struct {
	name       string
	must, keys string // the names of its rules (see rules)
	empties    bool   // an empty list differs from an unset one
}

// fields lists the members of an object that is read into a struct. It caches them by type, as a
// provider reads thousands of configurations in a second.
func fields(t reflect.Type) []field {
	if list, ok := fieldsOf.Load(t); ok {
		return list.([]field)
	}
	list := make([]field, t.NumField())
	for i := range list {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		empties := f.Type.Kind() == reflect.Slice && option == "omitzero"
		list[i] = field{name, f.Tag.Get("must"), f.Tag.Get("keys"), empties}
	}
	fieldsOf.Store(t, list)
	return list
}

var fieldsOf sync.Map // []field by reflect.Type

// find lists the settings below a type that have a name, ignoring case.
func find(t reflect.Type, path, name string) []string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var found []string
	for i, f := range fields(t) {
		at := member(path, f.name)
		if strings.EqualFold(f.name, name) {
			found = append(found, at)
		}
		found = append(found, find(t.Field(i).Type, at, name)...)
	}
	return found
}

// split cuts a plain path into the path of the object and the name in it.
func split(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '.')
	return path[:max(i, 0)], path[i+1:]
}

// leaf is one setting of a configuration: a string, number or boolean, or a whole map.
type leaf struct {
	spot
	item       bool // true for an item of a list or map
	value      reflect.Value
	must, keys string // the names of its rules (see rules)
}

// leaves lists the settings in the order of fields, without absent sections and empty settings.
func leaves(c *Config) []leaf {
	return leaf{value: reflect.ValueOf(c)}.leaves(make([]leaf, 0, 128))
}

func (l leaf) leaves(list []leaf) []leaf {
	switch v := l.value; v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			l.value = v.Elem()
			list = l.leaves(list)
		}
	case reflect.Struct:
		above := l.spot
		for i, f := range fields(v.Type()) {
			if next := v.Field(i); !unset(next) {
				list = leaf{spot{&above, f.name, false}, false, next, f.must, f.keys}.leaves(list)
			}
		}
	case reflect.Map:
		list = append(list, l)
		above := l.spot
		for name, next := range v.Seq2() {
			list = leaf{spot{&above, name.String(), false}, true, next, l.must, ""}.leaves(list)
		}
	case reflect.Slice:
		above := l.spot
		for i := range v.Len() {
			list = leaf{spot{&above, strconv.Itoa(i), true}, true, v.Index(i), l.must, ""}.leaves(list)
		}
	default:
		list = append(list, l)
	}
	return list
}

// unset reports whether a setting is absent: no value, or an empty one of a kind that can be empty.
func unset(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return v.IsNil()
	case reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	}
	return false
}

func (l leaf) text() string {
	if l.value.Kind() == reflect.String {
		return l.value.String()
	}
	return fmt.Sprint(l.value)
}

func (l leaf) shown() string {
	switch {
	case l.value.Kind() != reflect.String:
		return l.text()
	case l.value.Type() == reflect.TypeFor[Secret]():
		return redacted
	}
	return show(l.text())
}

// spot holds the place of a value in a document. Its path is made only for problems.
type spot struct {
	above *spot // nil for the document
	name  string
	list  bool // above is a list, and name an index
}

func (s spot) path() string {
	switch {
	case s.above == nil:
		return s.name
	case s.list:
		return s.above.path() + "[" + s.name + "]"
	}
	return member(s.above.path(), s.name)
}

// member returns the path of a member of the object at path: a.b for plain names, else a["b.c"].
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

func item(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// Setting is a set string, number, bool, or item of a list or map in a configuration.
type Setting struct {
	Path string
	// Text is the value, with secrets in clear; Shown is the form for problems.
	Text, Shown string
}

// Settings returns all settings that are set, in the order of fields. Empty, 0 and false are unset.
func (c Config) Settings() []Setting {
	var list []Setting
	for _, l := range leaves(&c) {
		if l.value.Kind() != reflect.Map && !l.value.IsZero() {
			list = append(list, Setting{l.path(), l.text(), l.shown()})
		}
	}
	return list
}

// Defaults returns the configuration of an empty document.
func Defaults() Config {
	c := defaults()
	c.complete(Host{})
	return c
}

// Decode reads a JSON object such as the machine's policy into the struct at dst. Null, "", unknown
// and duplicate names are problems. With a nil dst, only the syntax, text after the object and
// duplicate names are. The error is of type Problems.
func Decode(data []byte, dst any) error {
	r := &report{what: "document"}
	if doc := readDocument(data, r); doc != nil && dst != nil {
		r.empty("", doc)
		r.decode(spot{}, doc, reflect.ValueOf(dst).Elem())
	}
	return r.err(Config{})
}

func (r *report) empty(path string, v any) {
	switch v := v.(type) {
	case nil:
		r.add(path, "", "must be omitted, not null")
	case string:
		if v == "" {
			r.add(path, "", `must be omitted, not ""`)
		}
	case []any:
		for i, next := range v {
			r.empty(item(path, i), next)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			r.empty(member(path, name), v[name])
		}
	}
}
