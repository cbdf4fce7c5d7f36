// Package rawjson reads JSON that was encoded by encoding/json, and so is well-formed and compact:
// the provider's rows, of which it mostly needs a part.
package rawjson

import "bytes"

// Scanner goes over a text without making anything of it. At is where it is, Lost that the text is
// not as it expects.
type Scanner struct {
	Text []byte
	At   int
	Lost bool
}

// Peek is the next byte; 0 at the end.
func (s *Scanner) Peek() byte {
	if s.At >= len(s.Text) {
		return 0
	}
	return s.Text[s.At]
}

// next takes the next byte.
func (s *Scanner) next() byte {
	b := s.Peek()
	if s.At >= len(s.Text) {
		s.Lost = true
	} else {
		s.At++
	}
	return b
}

// Members calls see with the name of each member of an object, as it is written, where its value
// begins. see goes over the value, and returns whether to go on.
func (s *Scanner) Members(see func(name []byte) bool) {
	s.each('{', '}', func() bool {
		name := s.text()
		if s.next() != ':' {
			s.Lost = true
		}
		return !s.Lost && see(name)
	})
}

// Items calls see where each item of a list begins, over which see goes.
func (s *Scanner) Items(see func()) {
	s.each('[', ']', func() bool { see(); return true })
}

// each goes over what is between brackets, with commas between.
func (s *Scanner) each(open, end byte, see func() bool) {
	if s.next() != open {
		s.Lost = true
	}
	if s.Peek() == end {
		s.At++
		return
	}
	for !s.Lost && see() && !s.Lost {
		switch s.next() {
		case ',':
		case end:
			return
		default:
			s.Lost = true
		}
	}
}

// text reads a string, as it is written.
func (s *Scanner) text() []byte {
	if s.next() != '"' {
		s.Lost = true
		return nil
	}
	from := s.At
	for s.At <= len(s.Text) {
		rest := s.Text[s.At:]
		end := bytes.IndexByte(rest, '"')
		if end < 0 {
			break
		}
		if escape := bytes.IndexByte(rest[:end], '\\'); escape >= 0 {
			s.At += escape + 2
			continue
		}
		s.At += end + 1
		return s.Text[from : s.At-1]
	}
	s.At, s.Lost = len(s.Text), true
	return nil
}

// Value reads a value of any kind.
func (s *Scanner) Value() []byte {
	from, depth := s.At, 0
	for !s.Lost {
		if s.At >= len(s.Text) {
			s.Lost = depth > 0
			break
		}
		switch s.Text[s.At] {
		case '"':
			s.text()
			if depth == 0 {
				return s.Text[from:s.At]
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // of the object around: the value was a number or a word
				return s.Text[from:s.At]
			}
			if depth--; depth == 0 {
				s.At++
				return s.Text[from:s.At]
			}
		case ',':
			if depth == 0 {
				return s.Text[from:s.At]
			}
		}
		s.At++
	}
	return s.Text[from:s.At]
}
