package progress

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// columns is the number of terminal columns that text takes (Unicode Standard Annex 11: wide and
// fullwidth characters take two, combining marks and format characters none).
func columns(text string) int {
	n := 0
	for _, r := range text {
		n += runeColumns(r)
	}
	return n
}

func runeColumns(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// oneLine makes one line of text from elsewhere: line breaks, tabs and other control characters,
// which would move the cursor, become spaces.
func oneLine(text string) string {
	printable := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	return strings.Join(strings.Fields(printable), " ")
}

// split cuts text so that the head takes at most limit columns.
func split(text string, limit int) (head, tail string) {
	used := 0
	for i, r := range text {
		if used += runeColumns(r); used > limit {
			return text[:i], text[i:]
		}
	}
	return text, ""
}

// clip shortens text to limit columns; a mark at the end tells that something is missing.
func clip(text string, limit int) string {
	if columns(text) <= limit {
		return text
	}
	head, _ := split(text, limit-1)
	return head + "…"
}

// pad fills text up to limit columns.
func pad(text string, limit int) string {
	return text + strings.Repeat(" ", max(limit-columns(text), 0))
}

// wrap breaks text at spaces into lines of at most limit columns. A longer word, such as a URL, is
// cut into pieces.
func wrap(text string, limit int) []string {
	var lines []string
	current := ""
	for _, word := range strings.Fields(text) {
		if current != "" && columns(current)+1+columns(word) > limit {
			lines, current = append(lines, current), ""
		}
		for columns(word) > limit {
			head, tail := split(word, limit)
			if head == "" {
				break // one character is wider than the line
			}
			lines, word = append(lines, head), tail
		}
		current = strings.TrimSpace(current + " " + word)
	}
	return append(lines, current)
}
