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
		if _, err := Parse([]byte(text), testHost()); err != nil {
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
		if read, err := Parse([]byte(text), testHost()); read.Resource != nil || err != nil {
			t.Errorf("%.80s: %v, %v", text, read.Resource, err)
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
		`"resource":{"epoch":"2"}`:     "resource.epoch: must be a number, not a string",
		`"resource":{"epoch":-1}`:      "resource.epoch: must be a whole number",
		`"resource":{"epoch":1.5}`:     "resource.epoch: 1.5 is not allowed: must be a whole number",
		`"surprise":{}`:                "surprise: is not known",
		`"resource":{},"surprise":{}`:  "surprise: is not known",
		`"resource":{},"resource":{}`:  "resource: is given twice",
		`"resource":{"id":1,"id":"2"}`: "resource.id: is given twice",
	} {
		_, err := Parse([]byte(`{"config":`+bare+`,`+rest+`}`), testHost())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", rest, err)
		}
	}
	if _, err := Parse([]byte(`{"resource":{}}`), testHost()); err == nil ||
		!strings.Contains(err.Error(), "resource: is not known") {
		t.Errorf("a resource without a configuration: %v", err)
	}
}

// A bundle of a newer minor version may have what this program does not know; one of a newer major
// version is refused with what to do, and nothing else is said about it.
func TestSchemaVersions(t *testing.T) {
	bare := string(tokenDocument(t).bytes(t))
	strange := strings.Replace(bare, `"serverURL"`, `"odd":true,"serverURL"`, 1)
	strange = strings.Replace(strange, "{", `{"strange":1,`, 1)
	const update = `schemaVersion: "2.0" is not allowed: this agent supports configurations ` +
		`of version 1.x: update the agent on this machine (docs/how-to/upgrade.md)`
	for name, tt := range map[string]struct {
		schema, config, beside string
		warnings               int
		want                   string
	}{
		"ours":                         {`"1.0"`, bare, "", 0, ""},
		"ours, and more beside config": {`"1.0"`, bare, `,"signature":{"by":"x"}`, 0, ""},
		"ours, and more in config":     {`"1.0"`, strange, "", 2, ""},
		"newer":                        {`"1.7"`, bare, `,"more":[]`, 0, ""},
		"newer, and more in config":    {`"1.7"`, strange, "", 2, ""},
		"newer major":                  {`"2.0"`, bare, "", 0, update},
		"newer major, and all else":    {`"2.0"`, strange, `,"resource":7`, 0, update},
		"a number":                     {`1.0`, bare, "", 0, "must be a version major.minor"},
		"one number":                   {`"1"`, bare, "", 0, "must be a version major.minor"},
		"no number":                    {`"one.two"`, bare, "", 0, "must be a version"},
		"nothing":                      {`null`, bare, "", 0, "must be a version"},
	} {
		text := `{"schemaVersion":` + tt.schema + `,"config":` + tt.config + tt.beside + `}`
		read, err := Parse([]byte(text), testHost())
		warnings := read.Warnings
		if len(warnings) != tt.warnings {
			t.Errorf("%s: %v", name, warnings)
		}
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v", name, err)
		case tt.want == update && strings.Contains(err.Error(), "\n"):
			t.Errorf("%s: more is said: %v", name, err)
		}
	}
	if _, err := ResourceOf([]byte(`{"schemaVersion":"2.0","config":{}}`)); err == nil {
		t.Error("ResourceOf takes what Parse refuses")
	}
	if _, err := Canonical([]byte(`{"schemaVersion":"2.0","config":{}}`)); err == nil {
		t.Error("Canonical takes what Parse refuses")
	}
}

// What a bundle says of the machine's own members, in any case, gives way to what the machine
// keeps.
func TestWithJoining(t *testing.T) {
	kept := Joining{EnrolmentSecret: "once", Root: []byte("root"), ProviderCA: []byte("ca")}
	for _, member := range []string{
		`"Root":1`, `"ProviderCA":"x"`, `"enrolmentſecret":"evil"`, `"root":"AAAA"`,
	} {
		bundle, err := WithJoining([]byte(`{"config":{},`+member+`}`), kept)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(kept, JoiningOf(bundle)); diff != "" {
			t.Errorf("%s: %s", member, diff)
		}
	}
}
