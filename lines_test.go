package flexnode

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// columns bounds the characters of a line; a tab is one.
const columns = 100

// longURL matches a line that cannot be broken: nothing but a comment's or string's URL.
var longURL = regexp.MustCompile("^\\s*(?:// )?[\"`]?https?://\\S+$")

// Lines of Go have at most 100 columns, unless they are generated.
func TestLinesAreShort(t *testing.T) {
	for _, file := range files(t) {
		if path.Ext(file) != ".go" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(text), "// Code generated") {
			continue
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			line = strings.TrimRight(line, "\n")
			width := utf8.RuneCountInString(line)
			if width > columns && !longURL.MatchString(line) {
				t.Errorf("%s:%d has %d columns", file, n, width)
			}
		}
	}
}
