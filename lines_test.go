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

// longLinesLeft are the numbers of longer lines that directories still have. They may only fall.
var longLinesLeft = map[string]int{"internal/rp": 75, "lab": 41}

// longURL matches a line that cannot be broken: nothing but a comment's or string's URL.
var longURL = regexp.MustCompile("^\\s*(?:// )?[\"`]?https?://\\S+$")

// Lines of Go have at most 100 columns, unless they are generated.
func TestLinesAreShort(t *testing.T) {
	long := map[string]int{}
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
			if utf8.RuneCountInString(line) <= columns || longURL.MatchString(line) {
				continue
			}
			top := ""
			for dir := range longLinesLeft {
				if strings.HasPrefix(file, dir+"/") {
					top = dir
				}
			}
			if long[top]++; top == "" {
				t.Errorf("%s:%d has %d columns", file, n, utf8.RuneCountInString(line))
			}
		}
	}
	for dir, limit := range longLinesLeft {
		if long[dir] > limit {
			t.Errorf("%s has %d lines of more than %d columns, more than %d", dir, long[dir], columns,
				limit)
		}
	}
}
