package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// decode fills a Config from a document. Every member must be one that the Config has, and of its
// type.
func decode(doc *value, c *Config, r *report) {
	d := decoder{report: r, trail: make(trail, 0, 8)}
	d.decode(doc, reflect.ValueOf(c).Elem())
}

type decoder struct {
	report *report
	// trail leads to where in the document it is.
	trail trail
}

// decode sets dst from v. "" means not set and keeps the default that dst holds.
func (d *decoder) decode(v *value, dst reflect.Value) {
	if dst.Kind() == reflect.Pointer {
		fresh := reflect.New(dst.Type().Elem())
		d.decode(v, fresh.Elem())
		if v.kind == kindOf(dst.Type().Elem()) {
			dst.Set(fresh)
		}
		return
	}
	if want := kindOf(dst.Type()); v.kind != want {
		d.report.add(d.trail.path(), "", fmt.Sprintf("must be %s, not %s", want, v.kind))
		return
	}
	switch dst.Kind() {
	case reflect.Struct:
		d.members(v, dst)
	case reflect.Map:
		d.entries(v, dst)
	case reflect.Slice:
		d.items(v, dst)
	case reflect.Bool:
		dst.SetBool(v.text == "true")
	case reflect.Int, reflect.Int64:
		d.integer(v, dst)
	case reflect.String:
		if v.text != "" {
			dst.SetString(v.text)
		}
	}
}

// enter goes into a value, and sets dst from that.
func (d *decoder) enter(t turn, v *value, dst reflect.Value) {
	d.trail = append(d.trail, t)
	d.decode(v, dst)
	d.trail = d.trail[:len(d.trail)-1]
}

// kindOf is the JSON type that a field of type t is read from.
func kindOf(t reflect.Type) kind {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return anObject
	case reflect.Slice:
		return aList
	case reflect.Bool:
		return aBoolean
	case reflect.Int, reflect.Int64:
		return aNumber
	case reflect.Pointer:
		return kindOf(t.Elem())
	}
	return aString
}

// members reads an object; a member that is null is not set.
func (d *decoder) members(v *value, dst reflect.Value) {
	known := fields(dst.Type())
	for _, m := range v.members {
		i := slices.IndexFunc(known, func(f field) bool { return f.name == m.name })
		if i < 0 {
			d.unknown(m.name, known)
			continue
		}
		if m.value.kind != aNull {
			d.enter(turn{name: m.name}, m.value, dst.Field(known[i].index))
		}
		if m.value.kind == aList && len(m.value.items) == 0 && known[i].empties {
			list := dst.Field(known[i].index)
			list.Set(reflect.MakeSlice(list.Type(), 0, 0))
		}
	}
}

// unknown tells of a member that is not known: in a bundle of a newer form it is one that may be
// ignored.
func (d *decoder) unknown(name string, known []field) {
	path := d.trail.path()
	at := member(path, name)
	if d.report.newer {
		d.report.warn(at, "is not known to this agent and has no effect: update the agent")
		return
	}
	d.report.add(at, "", unknown(path, name, known))
}

func (d *decoder) entries(v *value, dst reflect.Value) {
	if len(v.members) == 0 {
		return
	}
	t := dst.Type()
	dst.Set(reflect.MakeMapWithSize(t, len(v.members)))
	name, elem := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
	for _, m := range v.members {
		name.SetString(m.name)
		elem.SetZero()
		d.enter(turn{name: m.name}, m.value, elem)
		dst.SetMapIndex(name, elem)
	}
}

func (d *decoder) items(v *value, dst reflect.Value) {
	if len(v.items) == 0 {
		return
	}
	dst.Set(reflect.MakeSlice(dst.Type(), len(v.items), len(v.items)))
	for i, next := range v.items {
		d.enter(turn{index: i, inList: true}, next, dst.Index(i))
	}
}

func (d *decoder) integer(v *value, dst reflect.Value) {
	n, err := strconv.ParseInt(v.text, 10, dst.Type().Bits())
	if err != nil {
		d.report.add(d.trail.path(), cut(v.text), "must be a whole number")
		return
	}
	dst.SetInt(n)
}

// field is a member that an object of the configuration can have.
type field struct {
	name  string
	index int
	// empties tells that an empty list is another setting than none.
	empties bool
}

// fields lists the members of an object that is read into a struct of type t.
func fields(t reflect.Type) []field {
	if known, ok := fieldsOf.Load(t); ok {
		return known.([]field)
	}
	list := make([]field, t.NumField())
	for i := range list {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		empties := f.Type.Kind() == reflect.Slice && option == "omitzero"
		list[i] = field{name, i, empties}
	}
	fieldsOf.Store(t, list)
	return list
}

// fieldsOf has what fields has found, by type: a configuration is made of few types.
var fieldsOf sync.Map
