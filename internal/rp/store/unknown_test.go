package store

import (
	"reflect"
	"testing"
)

// What is said to hold nothing unknown must not: it would be dropped.
func TestHasUnknown(t *testing.T) {
	tests := map[string]bool{
		`{}`:                                   false,
		`{"plain":"x","in":{"a":1}}`:           false,
		`{"plain":"\"},{\\","list":[{"n":1}]}`: false,
		`{"map":{"x":{"new":1}},"named":{}}`:   false,
		`{"pointer":null,"raw":{"new":[1]}}`:   false,
		`{"NoTag":-1.5e3,"here":2,"there":3}`:  false,
		`{"new":1}`:                            true,
		`{"plain":"x","new":{"a":[1,2]}}`:      true,
		`{"in":{"a":1,"new":2},"plain":""}`:    true,
		`{"pointer":{"new":null}}`:             true,
		`{"named":{"x":1,"y":1}}`:              true,
		`{"pl\u0061in":"x"}`:                   true, // it cannot tell
		`{ "plain": "x" }`:                     false,
		`{"plain":"x"`:                         true,
		`{"plain":"x`:                          true,
		`{"in":{"a":1`:                         true,
	}
	for row, want := range tests {
		if got := hasUnknown([]byte(row), reflect.TypeFor[Outer]()); got != want {
			t.Errorf("%s: %v", row, got)
		}
	}
}
