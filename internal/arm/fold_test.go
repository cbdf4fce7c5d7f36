package arm

import "testing"

// Every comparison ignores the case of ASCII letters, and only of these.
func TestFold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"resourceGroups", "RESOURCEgroups", true},
		{"", "", true},
		{"k8s", "K8S", true},
		{"k8s", "\u212a8s", false},
		{"resourceGroups", "re\u017fourceGroups", false},
		{"\u00c9", "\u00e9", false},
		{"\xff", "\xfe", false},
		{"@[`{", "@[`{", true},
		{"@", "`", false},
	} {
		if got := EqualFold(tt.a, tt.b); got != tt.want {
			t.Errorf("EqualFold(%q, %q) = %v", tt.a, tt.b, got)
		}
		if got := Fold(tt.a) == Fold(tt.b); got != tt.want {
			t.Errorf("Fold(%q), Fold(%q): equal %v", tt.a, tt.b, got)
		}
		if got := Within("/"+tt.a+"/x", "/"+tt.b); got != tt.want {
			t.Errorf("Within(%q, %q) = %v", tt.a, tt.b, got)
		}
	}
	for _, path := range []string{"/\u017fubscriptions/s",
		"/subscriptions/s/re\u017fourceGroups/g",
		"/subscriptions/s/resourceGroups/g/provider\u017f/A.B/c/d"} {
		if id, err := Parse(path); err == nil && id.Namespace != "" {
			t.Errorf("Parse(%q) = %+v", path, id)
		}
	}
}
