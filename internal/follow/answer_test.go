package follow

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Messages of a server are shortened, and not cut within a character.
func TestShorten(t *testing.T) {
	long := strings.Repeat("é", 400)
	for _, text := range []string{"short", long, "x" + long} {
		got := shorten(text)
		if !utf8.ValidString(got) || len(got) > 310 || len(text) < 300 && got != text {
			t.Errorf("%q is %q", text, got)
		}
	}
}
