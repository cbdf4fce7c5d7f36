package config

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const origin = `{"id":"/subscriptions/s/x","uid":"u-1","configVersion":"1700000000","epoch":2,` +
	`"later":true}`

// A bundle that says where it is from is the same document as its bare configuration.
func TestBundleWithResource(t *testing.T) {
	bare := string(tokenDocument(t).bytes(t))
	bundle := `{"config":` + bare + `,"resource":` + origin + `}`
	want, err := Canonical([]byte(bare))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`{"config":` + bare + `}`, bundle,
		`{"resource":` + origin + `,"config":` + bare + `}`} {
		got, err := Canonical([]byte(text))
		if err != nil || string(got) != string(want) {
			t.Errorf("%.80s: the document is another: %v", text, err)
		}
		if _, _, err := Parse([]byte(text), testHost()); err != nil {
			t.Errorf("%.80s: %v", text, err)
		}
	}
	file := safeDir(t) + "/bundle.json"
	if err := os.WriteFile(file, []byte(bundle), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	from := &Resource{
		ID: "/subscriptions/s/x", UID: "u-1", ConfigVersion: "1700000000", Epoch: 2,
	}
	if diff := cmp.Diff(from, loaded.Resource); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{bare, `{"config":` + bare + `}`,
		`{"config":` + bare + `,"resource":null}`} {
		if got, err := ResourceOf([]byte(text)); got != nil || err != nil {
			t.Errorf("%.80s: %v, %v", text, got, err)
		}
	}
}

// Only that second member makes a bundle, and it has to be what it is.
func TestBadBundles(t *testing.T) {
	bare := string(tokenDocument(t).bytes(t))
	for rest, want := range map[string]string{
		`"resource":7`:                 "resource: must be an object",
		`"resource":[]`:                "resource: must be an object",
		`"resource":{"uid":7}`:         "resource.uid: must be a string",
		`"resource":{"epoch":"2"}`:     "resource.epoch: must be a whole number",
		`"resource":{"epoch":-1}`:      "resource.epoch: must be a whole number",
		`"resource":{"epoch":1.5}`:     "resource.epoch: must be a whole number",
		`"surprise":{}`:                "surprise: is not known",
		`"resource":{},"surprise":{}`:  "surprise: is not known",
		`"resource":{},"resource":{}`:  "resource: is given twice",
		`"resource":{"id":1,"id":"2"}`: "resource.id: is given twice",
	} {
		_, _, err := Parse([]byte(`{"config":`+bare+`,`+rest+`}`), testHost())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", rest, err)
		}
	}
	if _, _, err := Parse([]byte(`{"resource":{}}`), testHost()); err == nil ||
		!strings.Contains(err.Error(), "resource: is not known") {
		t.Errorf("a resource without a configuration: %v", err)
	}
	if _, err := ResourceOf([]byte(`{"config":{},"resource":{"uid":7}}`)); err == nil {
		t.Error("ResourceOf takes what Parse refuses")
	}
}
