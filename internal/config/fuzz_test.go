package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzParse holds that no document makes Parse panic, that what it accepts comes back from Reveal,
// and that problems do not show the secrets that are where they belong.
func FuzzParse(f *testing.F) {
	token, principal := secretDocument(f)
	f.Add(token.bytes(f))
	f.Add(principal.bytes(f))
	f.Add(azureDocument(f, `"arc": {"enabled": false}, "managedIdentity": {"clientId": ""}`).bytes(f))
	f.Add([]byte(`{"config": {"components": {"kubernetes": "v1.31.0"}, ` +
		`"networking": null, "agent": {"enableDriftDetectionAndRemediation": null}}}`))
	f.Add([]byte(`{"node": {"taints": [""], "labels": {"": ""}, ` +
		`"kubelet": {"caCertData": "LS0t"}}, "cni": {"podCIDR": "::/0"}}`))
	f.Add([]byte(`{"artifacts": {"overrides": {"": {}}}, ` +
		`"azure": {"bootstrapToken": {"token": 1}, "servicePrincipal": []}}`))
	f.Add([]byte("{\"a\": 1, \"a\": {}} // "))
	files, err := filepath.Glob("../../packaging/examples/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := Parse(data, testHost())
		if err == nil {
			roundTrip(t, data)
			checkCanonical(t, data)
			return
		}
		problems, ok := err.(Problems)
		if !ok || len(problems) == 0 {
			t.Fatalf("the error is %#v", err)
		}
		for _, secret := range givenSecrets(data) {
			once := strings.Count(string(data), secret) == 1
			if once && strings.Contains(problems.Error(), secret) {
				t.Errorf("%q shows in:\n%v", secret, problems)
			}
		}
	})
}

// checkCanonical checks that the canonical form of a valid document is its own canonical form, and
// the same configuration.
func checkCanonical(t *testing.T, data []byte) {
	t.Helper()
	once, err := Canonical(data)
	if err != nil {
		t.Fatal(err)
	}
	twice, err := Canonical(once)
	if err != nil || !bytes.Equal(once, twice) {
		t.Errorf("the canonical form of %s is %s (%v)", once, twice, err)
	}
	want, err := Parse(data, testHost())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(once, testHost())
	if diff := cmp.Diff(want.Config, got.Config); err != nil || diff != "" {
		t.Errorf("the canonical form is another configuration: %v %s", err, diff)
	}
}

// givenSecrets lists the strings in a document's secret places, valid or not, that are long enough
// not to be in a message by chance.
func givenSecrets(data []byte) []string {
	var doc map[string]any
	if json.Unmarshal(data, &doc) != nil {
		return nil
	}
	if inner, ok := doc["config"].(map[string]any); ok && len(doc) == 1 {
		doc = inner
	}
	var list []string
	for _, path := range [][]string{
		{"azure", "bootstrapToken", "token"}, {"azure", "servicePrincipal", "clientSecret"},
		{"proxy", "http"}, {"proxy", "https"},
	} {
		var v any = doc
		for _, name := range path {
			inner, _ := v.(map[string]any)
			v = inner[name]
		}
		if s, ok := v.(string); ok && len(s) >= 12 {
			list = append(list, s)
		}
	}
	return list
}
