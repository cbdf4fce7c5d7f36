package state

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Record is a Resource that can be written to and read from JSON: an object with the resource's
// fields and its kind in "is".
//
// A record that was read is written again as it was, unless its Resource has been replaced: so a
// release keeps the fields that a newer one has written.
type Record struct {
	Resource
	// raw is what the record was read from, and read what this release makes of it.
	raw, read json.RawMessage
}

// decoder reads one kind of resource.
type decoder struct {
	kind   string
	decode func(data []byte) (Resource, error)
}

// kinds lists every kind that a ledger or a list of resources may hold.
func kinds() []decoder {
	return []decoder{
		{"absent", decode[Absent]},
		{"dir", decode[Dir]},
		{"file", decode[File]},
		{"link", decode[Link]},
		{"unit", decode[Unit]},
		{"sysctl", decode[Sysctl]},
		{"module", decode[Module]},
		{"swap", decode[Swap]},
		{"residue", decode[Residue]},
		{"registration", decode[Registration]},
		{"label", decode[Label]},
		{"cordon", decode[Cordon]},
	}
}

func decode[T Resource](data []byte) (Resource, error) {
	var r T
	err := json.Unmarshal(data, &r)
	return r, err
}

// MarshalJSON writes the resource with its kind.
func (r Record) MarshalJSON() ([]byte, error) {
	data, err := encode(r.Resource)
	if err == nil && r.raw != nil && bytes.Equal(data, r.read) {
		return r.raw, nil
	}
	return data, err
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
	head := fmt.Sprintf(`{"is":%q,`, r.kind())
	return append([]byte(head), body[1:]...), nil
}

// UnmarshalJSON reads what MarshalJSON wrote. A kind that this release does not know is Opaque.
func (r *Record) UnmarshalJSON(data []byte) error {
	var head struct {
		Is string `json:"is"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	if head.Is == "" {
		return fmt.Errorf(`cannot decode resource: it has no "is"`)
	}
	var raw bytes.Buffer
	if err := json.Compact(&raw, data); err != nil {
		return err
	}
	resource, err := Resource(Opaque{Kind: head.Is, Raw: raw.Bytes()}), error(nil)
	for _, k := range kinds() {
		if k.kind == head.Is {
			resource, err = k.decode(data)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot decode resource: %w", err)
	}
	read, err := encode(resource)
	*r = Record{Resource: resource, raw: raw.Bytes(), read: read}
	return err
}
