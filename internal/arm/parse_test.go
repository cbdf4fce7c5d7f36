package arm

import (
	"slices"
	"strings"
	"testing"
)

// Letters whose lower case is longer or shorter do not move what is taken apart.
func TestParseOtherLetters(t *testing.T) {
	t.Parallel()
	for _, letter := range []string{"Ⱥ", "İ", "\u212a", "\xff"} {
		group := "g" + strings.Repeat(letter, 20)
		id, err := Parse("/subscriptions/s/resourceGroups/" + group + "/PROVIDERS/A.B/c/d")
		if err != nil || id.ResourceGroup != group || id.Namespace != "A.B" ||
			!slices.Equal(id.Types, []string{"c"}) || !slices.Equal(id.Names, []string{"d"}) {
			t.Errorf("%q: %+v %v", letter, id, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, path := range []string{"", "/", "/subscriptions/s/resourceGroups/g/providers/A.B/c/d",
		"/ȺȺȺȺȺȺȺȺȺȺȺȺ/providers/", "/subscriptions/s/providers/A.B/c/d/providers/E.F/g"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		id, err := Parse(path)
		if err != nil {
			return
		}
		if n := len(id.Types) - len(id.Names); n != 0 && n != 1 {
			t.Errorf("%q: %+v", path, id)
		}
		if again, err := Parse(id.String()); err != nil || again.Type() != id.Type() {
			t.Errorf("%q is %q: %+v %v", path, id.String(), again, err)
		}
	})
}
