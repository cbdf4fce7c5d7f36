package service

import (
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const reference = "../../../docs/reference/"

// The reference has every setting of the first level.
func TestSettingsAreDocumented(t *testing.T) {
	page := string(must(os.ReadFile(reference + "provider-settings.md")))
	var want []string
	for field := range reflect.TypeFor[Settings]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		want = append(want, name)
	}
	var got []string
	row := regexp.MustCompile("(?m)^\\| `([a-zA-Z]+)` \\|")
	for _, found := range row.FindAllStringSubmatch(page, -1) {
		got = append(got, found[1])
	}
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("the setting %s is not documented", name)
		}
	}
	if len(want) < 20 {
		t.Errorf("there are only %d settings", len(want))
	}
}

// The reference has every metric of the provider.
func TestMetricsAreDocumented(t *testing.T) {
	page := string(must(os.ReadFile(reference + "metrics.md")))
	inWorld(t, func(t *testing.T, w *world) {
		w.must(201, http.MethodPut, nodeURL("edge-1"), withToken)
		pass(time.Second)
		w.must(200, http.MethodGet, nodeURL("edge-1"), "", `If-None-Match: "x"`)
		named := regexp.MustCompile("(?m)^# TYPE (flexnode_rp_[a-z_]+)")
		all := named.FindAllStringSubmatch(metrics(w), -1)
		for _, found := range all {
			has(t, "the reference of metrics", page, "`"+found[1]+"`")
		}
		if len(all) < 12 {
			t.Errorf("there are only %d metrics", len(all))
		}
	})
}
