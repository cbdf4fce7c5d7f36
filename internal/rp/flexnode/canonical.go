package flexnode

import (
	"encoding/json"
	"slices"
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

// canonical is compact JSON with sorted names: what encoding/json writes, without its reflection.
func canonical(o object) []byte { return appendCanonical(make([]byte, 0, 1<<10), o) }

func appendCanonical(text []byte, value any) []byte {
	switch v := value.(type) {
	case object:
		return appendObject(text, v)
	case []any:
		return appendList(text, v)
	case string:
		return appendString(text, v)
	case bool:
		return strconv.AppendBool(text, v)
	}
	return append(text, encode(value)...)
}

// encode is a value as encoding/json writes it.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil { // strings, numbers, lists and maps of them encode
		panic("internal error: " + err.Error())
	}
	return text
}

func appendString(text []byte, s string) []byte {
	if !isPlain(s) {
		return append(text, encode(s)...)
	}
	return append(append(append(text, '"'), s...), '"')
}

func appendObject(text []byte, o object) []byte {
	if o == nil {
		return append(text, "null"...)
	}
	names := make([]string, 0, 16)
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	text = append(text, '{')
	for i, name := range names {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(appendString(text, name), ':')
		text = appendCanonical(text, o[name])
	}
	return append(text, '}')
}

func appendList(text []byte, list []any) []byte {
	if list == nil {
		return append(text, "null"...)
	}
	text = append(text, '[')
	for i, item := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = appendCanonical(text, item)
	}
	return append(text, ']')
}

// isPlain reports whether a string needs no escapes in JSON, not even for HTML.
func isPlain[T string | []byte](s T) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c >= 0x7f, c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}
