// Package state is the pure middle of the engine: the parts of a machine (resources), the state of
// each before it was touched (the ledger), and the changes to make (Diff). Node renders into it,
// host and nodeobject observe into it, apply carries out its plans.
//
// Each kind of resource has one file here, and one in package host or nodeobject that observes and
// sets it. To add a kind, write both, add it to kinds and decide on it in undo.go.
package state

import (
	"reflect"
	"strings"
)

// Key identifies a thing, "kind:name". Everything that can be at a path has the kind "path".
type Key string

// Name returns the key without its kind: a path, a unit's name.
func (k Key) Name() string {
	_, name, _ := strings.Cut(string(k), ":")
	return name
}

// PathKey returns the key of anything at path.
func PathKey(path string) Key { return Key("path:" + path) }

// UnitKey returns the key of a systemd unit.
func UnitKey(name string) Key { return Key("unit:" + name) }

// Resource is one thing on a machine or of its Node object. An observed thing, a wanted thing and a
// remembered thing are the same type, so comparison is equality, undo is a change, and absence is a
// value. The set of kinds is closed. A kind that is not compared by its fields has a method equal.
type Resource interface {
	Key() Key
	// describe describes a change to this, as a phrase that stands alone or follows "cannot".
	describe(c Change) string
	// show describes the resource for people, without its content.
	show() string
}

// kind returns a resource's kind in JSON: the name of its type, which therefore must not change.
func kind(r Resource) string {
	if r, ok := r.(Opaque); ok {
		return r.Kind
	}
	return strings.ToLower(reflect.TypeOf(r).Name())
}

// Equal reports whether two resources are the same state of the same thing.
func Equal(a, b Resource) bool {
	if a.Key() != b.Key() {
		return false
	}
	if a, ok := a.(interface{ equal(other Resource) bool }); ok {
		return a.equal(b)
	}
	return a == b
}

// Satisfies reports whether the observed state suffices: a mount or the owner's link satisfies a
// wanted directory, a missing interface its parameter.
func Satisfies(seen, want Resource) bool {
	lenient, ok := want.(interface{ satisfiedBy(seen Resource) bool })
	if ok && seen.Key() == want.Key() {
		return lenient.satisfiedBy(seen)
	}
	return Equal(seen, want)
}

// Describe describes a change: "write /etc/x", "start kubelet.service".
func Describe(c Change) string {
	switch {
	case c.Leave:
		return "leave " + c.To.Key().Name() + " as it is: another process has changed it since"
	case c.Keep:
		c.Keep = false
		return Describe(c) + " (a copy of what is there is kept)"
	}
	return c.To.describe(c)
}

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// Show describes a resource for people: "absent", "a link to /x". It never shows content.
func Show(r Resource) string { return r.show() }
