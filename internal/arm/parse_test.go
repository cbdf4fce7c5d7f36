package arm

import (
	"slices"
	"strings"
	"testing"
)

// Letters whose lower case has another length do not shift the parts of an id.
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

// A group, cluster or node may be named "providers": a segment's position decides its meaning.
func TestParseOfWhatIsCalledProviders(t *testing.T) {
	t.Parallel()
	const group = "/subscriptions/S/resourceGroups/Providers"
	const cluster = group + "/providers/A.B/clusters/providers"
	for _, tt := range []struct {
		path, scope  string
		parent       string
		namespace    string
		types, names []string
	}{
		{group, group, "", "", nil, nil},
		{cluster, group, "", "A.B", []string{"clusters"}, []string{"providers"}},
		{cluster + "/nodes/providers", group, "", "A.B", []string{"clusters", "nodes"},
			[]string{"providers", "providers"}},
		{cluster + "/nodes/providers/list", group, "", "A.B", []string{"clusters", "nodes", "list"},
			[]string{"providers", "providers"}},
		{cluster + "/PROVIDERS/C.D/roles/providers", cluster, cluster, "C.D", []string{"roles"},
			[]string{"providers"}},
	} {
		id, err := Parse(tt.path)
		if err != nil || id.ResourceGroup != "Providers" || id.Scope() != tt.scope ||
			id.Parent != tt.parent || id.Namespace != tt.namespace ||
			!slices.Equal(id.Types, tt.types) || !slices.Equal(id.Names, tt.names) {
			t.Errorf("%s: %+v below %s, %v", tt.path, id, id.Scope(), err)
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
