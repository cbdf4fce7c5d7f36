package state

import (
	"encoding/json"
	"fmt"
)

// Record is a Resource that can be written to and read from JSON: an object with the resource's fields and its "is".
type Record struct{ Resource }

// MarshalJSON writes the resource with its type.
func (r Record) MarshalJSON() ([]byte, error) {
	body, err := json.Marshal(r.Resource)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf(`{"is":%q`, typeName(r.Resource))
	if string(body) == "{}" {
		return []byte(head + "}"), nil
	}
	return append([]byte(head+","), body[1:]...), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Record) UnmarshalJSON(data []byte) error {
	var head struct {
		Is string `json:"is"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	var err error
	switch head.Is {
	case "absent":
		r.Resource, err = decode[Absent](data)
	case "dir":
		r.Resource, err = decode[Dir](data)
	case "file":
		r.Resource, err = decode[File](data)
	case "link":
		r.Resource, err = decode[Link](data)
	case "unit":
		r.Resource, err = decode[Unit](data)
	case "sysctl":
		r.Resource, err = decode[Sysctl](data)
	case "module":
		r.Resource, err = decode[Module](data)
	case "swap":
		r.Resource, err = decode[Swap](data)
	case "residue":
		r.Resource, err = decode[Residue](data)
	default:
		err = fmt.Errorf("cannot decode resource: unknown type %q", head.Is)
	}
	return err
}

func decode[T Resource](data []byte) (Resource, error) {
	var r T
	err := json.Unmarshal(data, &r)
	return r, err
}

func typeName(r Resource) string {
	switch r.(type) {
	case Absent:
		return "absent"
	case Dir:
		return "dir"
	case File:
		return "file"
	case Link:
		return "link"
	case Unit:
		return "unit"
	case Sysctl:
		return "sysctl"
	case Module:
		return "module"
	case Swap:
		return "swap"
	case Residue:
		return "residue"
	default:
		panic(fmt.Sprintf("internal error: resource of unknown type %T", r))
	}
}
