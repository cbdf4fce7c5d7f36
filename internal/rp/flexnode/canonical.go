package flexnode

import (
	"encoding/json"
	"strconv"
)

// number is a whole number in an object, as it is read; 0 remains what without leaves out.
func number(n int) any {
	if n == 0 {
		return 0
	}
	return json.Number(strconv.Itoa(n))
}

// objectOf is an object of strings.
func objectOf(entries map[string]string) object {
	o := make(object, len(entries))
	for name, value := range entries {
		o[name] = value
	}
	return o
}

// listOf is a list of strings.
func listOf(items []string) []any {
	list := make([]any, len(items))
	for i, item := range items {
		list[i] = item
	}
	return list
}

// encode is a value as encoding/json writes it: compact, with sorted names of maps.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil { // strings, numbers, lists and maps of them encode
		panic("internal error: " + err.Error())
	}
	return text
}
