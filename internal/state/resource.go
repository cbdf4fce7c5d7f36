// Package state is the pure middle of the engine: what a machine is made of (resources), what each
// thing was before it was touched (the ledger), and what has to change (Diff). It reads no file,
// asks no clock and touches nothing; node renders into it, host and nodeobject observe into it,
// apply carries out its plans.
//
// Each kind of resource has one file here, with its JSON form, equality, undo rules and words, and
// one file in package host or nodeobject that observes and sets it. To add a kind, write both and
// add a line to kinds.
package state

import "strings"

// Key identifies a thing, "kind:name". Everything that can be at a path shares the kind "path", so
// that a file, a directory, a link and nothing at all are values of the same key.
type Key string

// Name is the key without its kind: a path, a unit's name.
func (k Key) Name() string {
	_, name, _ := strings.Cut(string(k), ":")
	return name
}

// PathKey is the key of whatever is at path.
func PathKey(path string) Key { return Key("path:" + path) }

// UnitKey is the key of a systemd unit.
func UnitKey(name string) Key { return Key("unit:" + name) }

// Resource is one thing on a machine or of its Node object. An observed thing, a wanted thing and a
// remembered thing are the same type, so comparison is equality, undo is a change, and absence is a
// value. The set of kinds is closed.
type Resource interface {
	Key() Key
	// kind is the name in JSON, and of the files in which the kind stands.
	kind() string
	// equal tells whether another resource of the same key is the same state.
	equal(other Resource) bool
	// claims tells whether a wanted resource must be in the ledger even when nothing has to change,
	// because its undo removes what came into being since.
	claims() bool
	// absence is what the resource is on a machine that was never a node; nil when that is unknown.
	absence() Resource
	// undoForeign says how an observed thing is undone that is neither what it was before nor what
	// we made of it: somebody else has changed it.
	undoForeign(before Resource) treatment
	// describe and describeUndo say what a change to this resource does, as a phrase that follows
	// "cannot" or stands alone.
	describe(c Change) string
	describeUndo(c Change) string
	// show says what the resource is, for people. It never shows content.
	show() string
}

// treatment is how undo treats a thing that somebody else has changed.
type treatment int

const (
	undoAnyway  treatment = iota // nothing of value is lost
	undoAndKeep                  // undo, and keep a copy of what is there
	leaveAsIs                    // the change belongs to whoever made it
)

// Equal tells whether two resources are the same state of the same thing.
func Equal(a, b Resource) bool { return a.Key() == b.Key() && a.equal(b) }

// Satisfies tells whether what was observed is as good as what is wanted. Besides what is equal, a
// wanted directory is satisfied by the owner's link to one, and by a mount whatever its mode; a
// parameter of a network interface by there being no such interface.
func Satisfies(seen, want Resource) bool {
	if dir, ok := want.(Dir); ok && seen.Key() == want.Key() {
		return dir.satisfiedBy(seen)
	}
	if parameter, ok := want.(Sysctl); ok {
		return parameter.satisfiedBy(seen)
	}
	return Equal(seen, want)
}

// Describe says what a change does: "write /etc/x", "start kubelet.service".
func Describe(c Change) string {
	switch {
	case c.Leave:
		return "leave " + c.To.Key().Name() + " as it is: somebody else has changed it since"
	case c.Keep:
		c.Keep = false
		return Describe(c) + " (a copy of what is there is kept)"
	case c.Undo:
		return c.To.describeUndo(c)
	default:
		return c.To.describe(c)
	}
}

// Show says what a resource is, for people: "absent", "a link to /x". It never shows content.
func Show(r Resource) string { return r.show() }
