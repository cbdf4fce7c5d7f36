package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// Record is a Resource with a JSON encoding: an object with the resource's kind in "is", which
// comes first, and its fields.
//
// A record is written unchanged as it was read, unless its Resource has been replaced: so a release
// keeps the fields of a newer one.
type Record struct {
	Resource
	// raw is the JSON of the record, read the resource decoded from it.
	raw  json.RawMessage
	read Resource
}

var kinds = typesByKind(
	Absent{}, Dir{}, File{}, Link{}, Unit{}, Sysctl{}, Module{}, Swap{}, Residue{}, Opening{},
	Table{}, Package{}, Registration{}, Label{}, Cordon{},
)

func typesByKind(resources ...Resource) map[string]reflect.Type {
	types := make(map[string]reflect.Type, len(resources))
	for _, r := range resources {
		types[kind(r)] = reflect.TypeOf(r)
	}
	return types
}

// MarshalJSON writes the resource with its kind.
func (r Record) MarshalJSON() ([]byte, error) {
	if r.raw != nil && reflect.DeepEqual(r.Resource, r.read) {
		return r.raw, nil
	}
	switch r := r.Resource.(type) {
	case nil, Unknown:
		return nil, fmt.Errorf("internal error: a resource that cannot be remembered: %v", r)
	case Opaque:
		return r.Raw, nil
	}
	body, err := json.Marshal(r.Resource)
	if err != nil {
		return nil, err
	}
	return append([]byte(recordHead+kind(r.Resource)+`",`), body[1:]...), nil
}

// recordHead is the start of each record, followed by its kind.
const recordHead = `{"is":"`

// UnmarshalJSON reads the output of MarshalJSON. A kind unknown to this release becomes Opaque.
func (r *Record) UnmarshalJSON(data []byte) error {
	rest, headed := bytes.CutPrefix(data, []byte(recordHead))
	kind, _, ended := bytes.Cut(rest, []byte(`"`))
	if !headed || !ended {
		return errors.New(`cannot decode resource: it does not begin with "is"`)
	}
	r.raw = bytes.Clone(data)
	r.Resource = Opaque{Kind: string(kind), Raw: r.raw}
	if t, known := kinds[string(kind)]; known {
		resource := reflect.New(t)
		if err := json.Unmarshal(data, resource.Interface()); err != nil {
			return fmt.Errorf("cannot decode resource: %w", err)
		}
		r.Resource = resource.Elem().Interface().(Resource)
	}
	r.read = r.Resource
	return nil
}

// Opaque is a resource of a newer release's kind. It is kept, but neither observed nor changed.
type Opaque struct {
	Kind string
	Raw  json.RawMessage // the resource's JSON
}

// Key identifies the resource by its digest, as its name is unknown.
func (r Opaque) Key() Key { return Key("opaque:" + r.Kind + ":" + Digest(string(r.Raw))) }

// equal needs no comparison: the key holds the digest of the whole resource.
func (r Opaque) equal(other Resource) bool {
	_, ok := other.(Opaque)
	return ok
}

func (r Opaque) describe(c Change) string { return either(c.Undo, "restore a ", "set a ") + r.Kind }

func (r Opaque) show() string { return "a " + r.Kind + ", which a newer release wrote" }

func (r Opaque) MarshalJSON() ([]byte, error) { return r.Raw, nil }
