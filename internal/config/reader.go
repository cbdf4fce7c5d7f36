package config

import (
	"encoding/json"
	"strings"
)

// reader turns a well-formed text into values.
type reader struct {
	text   []byte
	at     int
	report *report
	// trail leads to where in the document it is.
	trail trail
}

// turn is a step from a value into one within it.
type turn struct {
	name   string
	index  int
	inList bool
}

// in is the path that the step from one leads to.
func (t turn) in(path string) string {
	if t.inList {
		return item(path, t.index)
	}
	return member(path, t.name)
}

// trail is the steps from a whole document to where somebody is in it.
type trail []turn

func (t trail) path() string {
	path := ""
	for _, next := range t {
		path = next.in(path)
	}
	return path
}

// enter goes into a value, and returns it.
func (d *reader) enter(t turn) *value {
	d.trail = append(d.trail, t)
	v := d.value()
	d.trail = d.trail[:len(d.trail)-1]
	return v
}

// peek is the next byte that is no space; 0 at the end.
func (d *reader) peek() byte {
	for d.at < len(d.text) {
		switch c := d.text[d.at]; c {
		case ' ', '\t', '\r', '\n':
			d.at++
		default:
			return c
		}
	}
	return 0
}

// take takes the next byte that is no space, if it is the one that is asked for.
func (d *reader) take(c byte) bool {
	if d.peek() != c {
		return false
	}
	d.at++
	return true
}

func (d *reader) value() *value {
	switch c := d.peek(); c {
	case '{':
		return d.object()
	case '[':
		return d.list()
	case '"':
		return &value{kind: aString, text: d.string()}
	case 't', 'f':
		return &value{kind: aBoolean, text: d.word()}
	case 'n':
		d.word()
		return &value{kind: aNull}
	}
	return &value{kind: aNumber, text: d.word()}
}

// word is a number, true, false or null, as it is written.
func (d *reader) word() string {
	from := d.at
	for d.at < len(d.text) && strings.IndexByte(",:]} \t\r\n", d.text[d.at]) < 0 {
		d.at++
	}
	return string(d.text[from:d.at])
}

// string is the content of a string.
func (d *reader) string() string {
	from, escaped := d.at, false
	for d.at++; d.at < len(d.text) && d.text[d.at] != '"'; d.at++ {
		if d.text[d.at] == '\\' {
			escaped = true
			d.at++
		}
	}
	d.at++
	if !escaped {
		return string(d.text[from+1 : d.at-1])
	}
	var content string
	_ = json.Unmarshal(d.text[from:d.at], &content) // the text is well-formed
	return content
}

func (d *reader) object() *value {
	v := &value{kind: anObject}
	seen := map[string]bool{}
	d.take('{')
	for !d.take('}') && d.peek() != 0 {
		d.peek()
		name := d.string()
		d.take(':')
		next := d.enter(turn{name: name})
		d.take(',')
		if seen[name] {
			d.report.add(member(d.trail.path(), name), "", "is given twice: keep one")
			continue
		}
		seen[name] = true
		v.members = append(v.members, entry{name: name, value: next})
	}
	return v
}

func (d *reader) list() *value {
	v := &value{kind: aList}
	d.take('[')
	for !d.take(']') && d.peek() != 0 {
		v.items = append(v.items, d.enter(turn{index: len(v.items), inList: true}))
		d.take(',')
	}
	return v
}
