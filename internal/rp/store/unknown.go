package store

import "reflect"

// hasUnknown tells whether a stored object has members that its type does not know, also in objects
// within: almost no row has, and then there is nothing to keep. Lists and maps are not looked into.
// A row that it cannot follow may have some.
func hasUnknown(row []byte, t reflect.Type) bool {
	s := scanner{row: row}
	return s.object(t) || s.lost
}

// scanner reads JSON that was encoded by encoding/json, without making anything of it.
type scanner struct {
	row  []byte
	at   int
	lost bool
}

// next is the next byte, which is taken; 0 at the end.
func (s *scanner) next() byte {
	if s.at >= len(s.row) {
		s.lost = true
		return 0
	}
	s.at++
	return s.row[s.at-1]
}

// object reads a value of a type, and tells whether there is a member in it that the type does not
// know.
func (s *scanner) object(t reflect.Type) bool {
	names := members(t)
	if names == nil || s.at >= len(s.row) || s.row[s.at] != '{' {
		s.skip()
		return false
	}
	s.at++
	if s.at < len(s.row) && s.row[s.at] == '}' {
		s.at++
		return false
	}
	for !s.lost {
		name := s.text()
		if s.next() != ':' {
			s.lost = true
			return false
		}
		field, known := names[string(name)] // a name that is escaped is none of ours
		if !known || s.object(field) {
			return true
		}
		switch s.next() {
		case ',':
		case '}':
			return false
		default:
			s.lost = true
		}
	}
	return false
}

// text reads a string, as it is written.
func (s *scanner) text() []byte {
	if s.next() != '"' {
		s.lost = true
		return nil
	}
	from := s.at
	for !s.lost {
		switch s.next() {
		case '\\':
			s.next()
		case '"':
			return s.row[from : s.at-1]
		}
	}
	return nil
}

// skip reads a value of any kind.
func (s *scanner) skip() {
	depth := 0
	for !s.lost {
		if s.at >= len(s.row) {
			s.lost = depth > 0
			return
		}
		switch s.row[s.at] {
		case '"':
			s.text()
			if depth == 0 {
				return
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // of the object around: the value was a number or a word
				return
			}
			if depth--; depth == 0 {
				s.at++
				return
			}
		case ',':
			if depth == 0 {
				return
			}
		}
		s.at++
	}
}
