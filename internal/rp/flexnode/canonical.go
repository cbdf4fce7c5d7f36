package flexnode

import (
	"encoding/json"
)

// objectOf is a value as an object, as it is read; nil of a map that is nil.
func objectOf(value any) object {
	o, err := readObject(encode(value))
	if err != nil {
		return nil
	}
	return o
}

// encode is a value as encoding/json writes it: compact, with sorted names of maps.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil { // strings, numbers, lists and maps of them encode
		panic("internal error: " + err.Error())
	}
	return text
}
