package progress

import (
	"strconv"
	"strings"
	"testing"
)

// screen is a terminal of ECMA-48 as far as Terminal uses one: lines, "cursor up", "erase the
// line". It keeps what is on it, and fails the test where a line reaches the last column.
type screen struct {
	t     *testing.T
	width int
	lines []string
	row   int
}

func (s *screen) Write(p []byte) (int, error) {
	rest := string(p)
	for rest != "" {
		switch {
		case strings.HasPrefix(rest, "\x1b["):
			end := strings.IndexAny(rest, "AK")
			if end < 0 {
				s.t.Fatalf("a sequence that no terminal here knows: %q", rest)
			}
			s.control(rest[2:end], rest[end])
			rest = rest[end+1:]
		default:
			line, after, found := strings.Cut(rest, "\n")
			if !found || strings.ContainsRune(line, '\x1b') {
				s.t.Fatalf("a line without an end, or with a sequence inside: %q", rest)
			}
			s.line(line)
			rest = after
		}
	}
	return len(p), nil
}

func (s *screen) control(number string, what byte) {
	switch what {
	case 'A':
		n, err := strconv.Atoi(number)
		if err != nil || n > s.row {
			s.t.Fatalf("cursor up %q from row %d", number, s.row)
		}
		s.row -= n
	case 'K':
		s.lines[s.row] = ""
	}
}

func (s *screen) line(text string) {
	if got := columns.StringWidth(text); got >= s.width {
		s.t.Errorf("a line of %d columns on a terminal of %d: %q", got, s.width, text)
	}
	if text != strings.TrimRight(text, " ") {
		s.t.Errorf("a line ends with spaces: %q", text)
	}
	if s.row == len(s.lines) {
		s.lines = append(s.lines, "")
	}
	if s.lines[s.row] != "" {
		s.t.Errorf("%q is written over %q", text, s.lines[s.row])
	}
	s.lines[s.row] = text
	s.row++
}

// text returns the screen's content down to the cursor.
func (s *screen) text() string { return strings.Join(s.lines[:s.row], "\n") }
