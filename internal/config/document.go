package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"
)

// value is one JSON value. It keeps what decoding into Go values loses: the kind, null, and numbers
// as written.
type value struct {
	kind kind
	// text is the content of a string, or the literal of a number, true or false.
	text    string
	members []entry
	items   []*value
}

// entry is a member of an object.
type entry struct {
	name  string
	value *value
}

// kind is the type of a JSON value, as a person calls it.
type kind string

const (
	anObject kind = "an object"
	aList    kind = "a list"
	aString  kind = "a string"
	aNumber  kind = "a number"
	aBoolean kind = "true or false"
	aNull    kind = "null"
)

// get returns the member of an object, or nil.
func (v *value) get(name string) *value {
	if v == nil || v.kind != anObject {
		return nil
	}
	for _, m := range v.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// valueOf makes a value of what encoding/json has decoded, with numbers as written.
func valueOf(decoded any) *value {
	v := new(value)
	v.set(decoded)
	return v
}

func (v *value) set(decoded any) {
	switch d := decoded.(type) {
	case map[string]any:
		*v = value{kind: anObject, members: make([]entry, 0, len(d))}
		within := make([]value, len(d))
		for name, next := range d { // problems are sorted by their paths
			one := &within[len(v.members)]
			one.set(next)
			v.members = append(v.members, entry{name, one})
		}
	case []any:
		*v = value{kind: aList, items: make([]*value, len(d))}
		within := make([]value, len(d))
		for i, next := range d {
			within[i].set(next)
			v.items[i] = &within[i]
		}
	case string:
		*v = value{kind: aString, text: d}
	case json.Number:
		*v = value{kind: aNumber, text: d.String()}
	case bool:
		*v = value{kind: aBoolean, text: strconv.FormatBool(d)}
	case nil:
		*v = value{kind: aNull}
	default:
		panic(fmt.Sprintf("internal error: %T is no part of a decoded document", decoded))
	}
}

// remove deletes a member of an object.
func (v *value) remove(name string) {
	v.members = slices.DeleteFunc(v.members, func(m entry) bool { return m.name == name })
}

// readDocument parses one JSON object. Names that are given twice are problems; anything that is
// not JSON is an error with line and column.
func readDocument(data []byte, r *report) *value {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if message := checkSyntax(data); message != "" {
		r.add("", "", message)
		return nil
	}
	doc := (&reader{text: data, report: r}).value()
	if doc.kind != anObject {
		r.add("", "", fmt.Sprintf("the configuration must be an object ({...}), not %s", doc.kind))
		return nil
	}
	return doc
}

// checkSyntax says where and why data is no JSON text, or "".
func checkSyntax(data []byte) string {
	if len(bytes.TrimSpace(data)) == 0 {
		return "the configuration is empty"
	}
	if bad := invalidUTF8(data); bad >= 0 {
		return place(data, bad) + ": this is not UTF-8"
	}
	if json.Valid(data) {
		return ""
	}
	var raw json.RawMessage
	err := json.Unmarshal(data, &raw)
	if errors.Is(json.NewDecoder(bytes.NewReader(data)).Decode(&raw), io.ErrUnexpectedEOF) {
		return place(data, len(data)) +
			": the document ends too early: a bracket or a quote is missing"
	}
	at := 0
	if syntax := new(json.SyntaxError); errors.As(err, &syntax) {
		at = min(max(0, int(syntax.Offset)-1), len(data)-1)
	}
	return place(data, at) + ": " + hint(data, at, err)
}

func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// hint explains the mistakes that people make in JSON most often.
func hint(data []byte, at int, err error) string {
	before := bytes.TrimRight(data[:at], " \t\r\n")
	switch {
	case data[at] == '/' || data[at] == '#':
		return "JSON has no comments: remove this one"
	case bytes.HasSuffix(before, []byte(",")) && (data[at] == '}' || data[at] == ']'):
		return "the comma before this bracket is one too many"
	}
	return err.Error()
}

// place gives line and column (in characters, from 1) of an offset.
func place(data []byte, at int) string {
	head := data[:at]
	line := 1 + bytes.Count(head, []byte("\n"))
	column := 1 + utf8.RuneCount(head[bytes.LastIndexByte(head, '\n')+1:])
	return fmt.Sprintf("line %d, column %d", line, column)
}
