// Package rawjson reads JSON by parts: the provider's rows, of which it mostly needs a few. It
// takes what encoding/json takes, in a fraction of the time.
package rawjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Scanner goes over a text.
type Scanner struct {
	text []byte
	d    *jsontext.Decoder
	err  error
}

// NewScanner goes over a text, which must not be changed meanwhile.
func NewScanner(text []byte) *Scanner {
	return &Scanner{text: text, d: jsontext.NewDecoder(bytes.NewBuffer(text),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
}

// Lost tells that the text is no JSON, or not what was expected, as far as it was read.
func (s *Scanner) Lost() bool { return s.err != nil }

// Done tells that all of the text was read and is JSON.
func (s *Scanner) Done() bool {
	if s.err != nil {
		return false
	}
	_, err := s.d.ReadToken()
	return errors.Is(err, io.EOF)
}

// Peek is the kind of what comes next: its first byte, '0' of any number; 0 at the end.
func (s *Scanner) Peek() jsontext.Kind { return s.d.PeekKind() }

// Before is the text up to what comes next.
func (s *Scanner) Before() []byte {
	at := int(s.d.InputOffset())
	for at < len(s.text) && bytes.IndexByte([]byte(" \t\r\n:,"), s.text[at]) >= 0 {
		at++
	}
	return s.text[:at:at]
}

// Since is the text from an offset to the end of what was read last.
func (s *Scanner) Since(from int) []byte {
	end := int(s.d.InputOffset())
	return s.text[from:end:end]
}

// After is the text that follows what was read last.
func (s *Scanner) After() []byte { return s.text[s.d.InputOffset():] }

// Members calls see with the name of each member of an object, as it is written between its quotes,
// where its value begins. see reads the value, and returns whether to go on.
func (s *Scanner) Members(see func(name []byte) bool) {
	s.each('{', '}', func() bool {
		name := s.Value()
		return s.err == nil && see(name[1:len(name)-1])
	})
}

// Items calls see where each item of a list begins, which see reads.
func (s *Scanner) Items(see func()) {
	s.each('[', ']', func() bool { see(); return true })
}

// each goes over what is between brackets.
func (s *Scanner) each(open, end jsontext.Kind, see func() bool) {
	if s.token().Kind() != open {
		s.lose(errKind)
	}
	for s.err == nil && s.d.PeekKind() != end {
		if !see() {
			return
		}
	}
	s.token()
}

// Value reads a value of any kind, as it is written.
func (s *Scanner) Value() []byte {
	value, err := s.d.ReadValue()
	s.lose(err)
	end := int(s.d.InputOffset())
	return s.text[end-len(value) : end : end] // unlike value, it remains
}

var errKind = errors.New("it is of another kind")

func (s *Scanner) lose(err error) {
	if s.err == nil {
		s.err = err
	}
}

// token reads the next token; the zero one when there is none.
func (s *Scanner) token() jsontext.Token {
	if s.err != nil {
		return jsontext.Token{}
	}
	t, err := s.d.ReadToken()
	s.lose(err)
	return t
}

// Decode is an object as encoding/json decodes it, with numbers as written (json.Number). Its
// strings are parts of one copy of the text, where they are written as they are.
func Decode(text []byte) (map[string]any, error) {
	d := decoder{NewScanner(text), string(text)}
	object, ok := d.decode().(map[string]any)
	if !ok || !d.Done() {
		return nil, errors.New("it is no JSON object")
	}
	return object, nil
}

type decoder struct {
	*Scanner
	whole string
}

func (d *decoder) decode() any {
	switch d.Peek() {
	case '{':
		object := map[string]any{}
		d.each('{', '}', func() bool {
			name := d.string()
			object[name] = d.decode()
			return true
		})
		return object
	case '[':
		list := []any{}
		d.Items(func() { list = append(list, d.decode()) })
		return list
	case '"':
		return d.string()
	case '0':
		return json.Number(d.part(d.Value()))
	}
	if t := d.token(); t.Kind() == 't' || t.Kind() == 'f' {
		return t.Bool()
	}
	return nil
}

// part is what was read last, as a part of the whole.
func (d *decoder) part(read []byte) string {
	end := int(d.d.InputOffset())
	return d.whole[end-len(read) : end]
}

// string reads a string.
func (d *decoder) string() string {
	quoted := d.Value()
	if d.Lost() {
		return ""
	}
	if bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) {
		return d.part(quoted)[1 : len(quoted)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, quoted) // what is no UTF-8 is replaced
	return string(text)
}
