package service

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

const reference = "../../../docs/reference/"

// The reference has every setting of the first level.
func TestSettingsAreDocumented(t *testing.T) {
	page := string(must(os.ReadFile(reference + "provider-settings.md")))
	n := 0
	for field := range reflect.TypeFor[Settings]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if n++; !strings.Contains(page, "\n| `"+name+"` |") {
			t.Errorf("the setting %s is not documented", name)
		}
	}
	if n < 20 {
		t.Errorf("there are only %d settings", n)
	}
}

// documented checks that the reference has every metric of the provider.
func documented(t *testing.T, shown string) {
	t.Helper()
	page := string(must(os.ReadFile(reference + "metrics.md")))
	all := regexp.MustCompile("(?m)^# TYPE (flexnode_rp_[a-z_]+)").FindAllStringSubmatch(shown, -1)
	for _, found := range all {
		has(t, "the reference of metrics", page, "`"+found[1]+"`")
	}
	if len(all) < 12 {
		t.Errorf("there are only %d metrics", len(all))
	}
}
