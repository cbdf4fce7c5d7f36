package config

import (
	"maps"
	"reflect"
	"slices"
)

// Setting is one that a configuration has: a string, number, bool, or an item of a list or map.
type Setting struct {
	Path string
	// Text is the value, secrets in clear; Shown is what a problem shows of it.
	Text, Shown string
}

// Settings are all that are set, in the order of fields. Empty, 0 and false count as not set.
func (c Config) Settings() []Setting {
	var list []Setting
	for _, l := range leaves(&c) {
		if l.value.Kind() != reflect.Map && !l.value.IsZero() {
			list = append(list, Setting{l.path, l.text(), l.shown()})
		}
	}
	return list
}

// Defaults returns a configuration of which everything was left open.
func Defaults() Config {
	c := defaults()
	c.complete(Host{})
	return c
}

// Decode reads a JSON object that is no configuration, such as the machine's policy, into dst, a
// pointer to a struct. What is not set must be left out: null and "" are problems, as are names that
// are not known or given twice. The error is of type Problems.
func Decode(data []byte, dst any) error {
	r := &report{what: "document"}
	if doc := readDocument(data, r); doc != nil {
		r.empty("", doc)
		r.decode("", doc, reflect.ValueOf(dst).Elem())
	}
	return r.err(Config{})
}

// empty reports each null and "" in a value.
func (r *report) empty(path string, v any) {
	switch v := v.(type) {
	case nil:
		r.add(path, "", "must be left out, not null")
	case string:
		if v == "" {
			r.add(path, "", `must be left out, not ""`)
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
