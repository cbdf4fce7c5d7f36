package store

import (
	"reflect"

	"github.com/Azure/AKSFlexNode/internal/rp/rawjson"
)

// hasUnknown reports whether a stored object has members that its type does not know, also in
// objects within: almost no row has, and then there is nothing to keep. Lists and maps are not gone
// into. A row that it cannot follow may have some.
func hasUnknown(row []byte, t reflect.Type) bool {
	s := rawjson.NewScanner(row)
	return unknownIn(s, t) || s.Lost()
}

// unknownIn goes over a value of a type, and reports whether there is a member in it that the type
// does not know. It goes no further then.
func unknownIn(s *rawjson.Scanner, t reflect.Type) bool {
	names := members(t)
	if names == nil || s.Peek() != '{' {
		s.Value()
		return false
	}
	found := false
	s.Members(func(name []byte) bool {
		field, known := names[string(name)] // a name that is escaped is none of ours
		found = !known || unknownIn(s, field)
		return !found
	})
	return found
}
