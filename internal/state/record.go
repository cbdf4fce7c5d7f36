package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
)

// Record is a Resource that can be written to and read from JSON: an object with the resource's
// fields and its kind in "is".
//
// A record that was read is written again as it was, unless its Resource has been replaced: so a
// release keeps the fields that a newer one has written.
type Record struct {
	Resource
	// raw is what the record was read from.
	raw json.RawMessage
}

// kinds are all that a ledger or a list of resources may hold.
var kinds = []Resource{
	Absent{}, Dir{}, File{}, Link{}, Unit{}, Sysctl{}, Module{}, Swap{}, Residue{}, Opening{},
	Table{}, Package{}, Registration{}, Label{}, Cordon{},
}

// MarshalJSON writes the resource with its kind.
func (r Record) MarshalJSON() ([]byte, error) {
	data, err := encode(r.Resource)
	if err != nil || r.raw == nil {
		return data, err
	}
	was, err := read(r.raw)
	if err != nil {
		return nil, err
	}
	if before, err := encode(was); err != nil || bytes.Equal(data, before) {
		return r.raw, err
	}
	return data, nil
}

func encode(r Resource) ([]byte, error) {
	switch r := r.(type) {
	case nil, Unknown:
		return nil, fmt.Errorf("internal error: a resource that cannot be remembered: %v", r)
	case Opaque:
		return r.Raw, nil
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf(`{"is":%q,`, kind(r))
	return append([]byte(head), body[1:]...), nil
}

// UnmarshalJSON reads what MarshalJSON wrote. A kind that this release does not know is Opaque.
func (r *Record) UnmarshalJSON(data []byte) error {
	var raw bytes.Buffer
	if err := json.Compact(&raw, data); err != nil {
		return err
	}
	resource, err := read(raw.Bytes())
	*r = Record{Resource: resource, raw: raw.Bytes()}
	return err
}

// read decodes a resource by its kind.
func read(raw json.RawMessage) (Resource, error) {
	var head struct {
		Is string `json:"is"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, err
	}
	if head.Is == "" {
		return nil, fmt.Errorf(`cannot decode resource: it has no "is"`)
	}
	for _, k := range kinds {
		if kind(k) != head.Is {
			continue
		}
		r := reflect.New(reflect.TypeOf(k))
		if err := json.Unmarshal(raw, r.Interface()); err != nil {
			return nil, fmt.Errorf("cannot decode resource: %w", err)
		}
		return r.Elem().Interface().(Resource), nil
	}
	return Opaque{Kind: head.Is, Raw: raw}, nil
}

// Opaque is a remembered or wanted resource of a kind that this release does not know, because a
// newer one wrote it. It is kept as it was written, and neither observed nor changed.
type Opaque struct {
	Kind string
	// Raw is the resource's JSON.
	Raw json.RawMessage
}

// Key has the form of the thing in it, as nobody knows what it is called.
func (r Opaque) Key() Key { return Key("opaque:" + r.Kind + ":" + Digest(string(r.Raw))) }

// equal: the key holds the digest of all that is known.
func (r Opaque) equal(other Resource) bool {
	_, ok := other.(Opaque)
	return ok
}

func (r Opaque) describe(c Change) string { return either(c.Undo, "restore a ", "set a ") + r.Kind }

func (r Opaque) show() string { return "a " + r.Kind + ", which a newer release wrote" }

func (r Opaque) MarshalJSON() ([]byte, error) { return r.Raw, nil }
