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

// in returns the value at the end of a path of names, nil if it is not there.
func in(o object, path ...string) any {
	last := len(path) - 1
	for _, name := range path[:last] {
		o, _ = o[name].(object)
	}
	return o[path[last]]
}

// textIn returns the text at the end of a path, "" if it is not there.
func textIn(o object, path ...string) string {
	text, _ := in(o, path...).(string)
	return text
}

// encode is a value as encoding/json writes it: compact, with sorted names of maps.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil { // strings, numbers, lists and maps of them encode
		panic("internal error: " + err.Error())
	}
	return text
}
