// Package untrusted makes text of other programs safe to show: messages of a Node, errors of the
// provider, of a proxy and of an API server, and reports of agents.
package untrusted

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Text is text of another program. It is formatted and encoded as one line, without control
// characters, characters that reorder or hide others, and backticks, which mark our commands.
type Text string

// String returns the safe form of the text.
func (t Text) String() string { return strings.ReplaceAll(Line(string(t)), "`", "'") }

// Line returns a text as one line without control characters.
func Line(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	})
	return visible(strings.Join(words, " "))
}

// Cut returns a text of at most a number of bytes; dots are in place of its end.
func Cut(text string, most int) string {
	const dots = "..."
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(dots)], "") + dots
}

// MarshalText implements encoding.TextMarshaler.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

var reason = regexp.MustCompile(`^[A-Za-z0-9]{1,64}$`)

// Reason returns the text if it is one word, as a reason must be, else Other.
func Reason(text string) string {
	if reason.MatchString(text) {
		return text
	}
	return "Other"
}

// Writer returns a writer for people: a terminal receives no control characters but line breaks and
// tabs. The escapes leave JSON equivalent.
func Writer(w io.Writer) io.Writer { return writer{w} }

type writer struct{ io.Writer }

func (w writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.Writer, visible(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// visible escapes hidden characters as in JSON.
func visible(text string) string {
	if !strings.ContainsFunc(text, hidden) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		switch {
		case !hidden(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// hidden reports whether a character is invisible or changes the display of others.
func hidden(r rune) bool {
	return r != '\n' && r != '\t' && (r == unicode.ReplacementChar ||
		unicode.In(r, unicode.C, unicode.Zl, unicode.Zp))
}
