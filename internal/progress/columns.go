package progress

import (
	"strings"

	"github.com/mattn/go-runewidth"
)

// columns counts a terminal's columns in any locale: wide characters take two, marks none.
var columns = &runewidth.Condition{StrictEmojiNeutral: true}

// wrap breaks text at spaces into lines of at most limit columns, and longer words into pieces.
func wrap(text string, limit int) []string {
	var lines []string
	current := ""
	for _, word := range strings.Fields(text) {
		if current != "" && columns.StringWidth(current)+1+columns.StringWidth(word) > limit {
			lines, current = append(lines, current), ""
		}
		for columns.StringWidth(word) > limit {
			head := columns.Truncate(word, limit, "")
			if head == "" {
				break // one character is wider than the line
			}
			lines, word = append(lines, head), word[len(head):]
		}
		current = strings.TrimSpace(current + " " + word)
	}
	return append(lines, current)
}
