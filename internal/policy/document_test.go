package policy

import (
	"os"
	"strings"
	"testing"
)

// The reference has every limit, by its full name or below the one before it.
func TestLimitsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	list := Policy{}.Limits()
	for _, l := range list {
		short := l.Name[strings.LastIndex(l.Name, ".")+1:]
		if !strings.Contains(string(page), "`"+l.Name+"`") &&
			!strings.Contains(string(page), "`."+short+"`") {
			t.Errorf("the limit %s is not documented", l.Name)
		}
	}
	if len(list) < 12 {
		t.Errorf("there are only %d limits", len(list))
	}
}
