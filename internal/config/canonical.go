package config

import (
	"bytes"
	"encoding/json"
)

// Canonical is one spelling of a document: compact JSON with sorted names, out of its bundle, with
// settings in the place of aliases. Two documents with the same one say the same, so that
// receiving the second is a no-op. Defaults are not filled in and values are not checked; the error
// is of type Problems, and says what cannot be read. Secrets are in clear; the one that enrols an
// Arc machine is left out, since it is erased from documents that are kept.
func Canonical(data []byte) ([]byte, error) {
	r := &report{}
	doc := readSettings(data, r)
	if len(r.problems) > 0 {
		return nil, r.sorted(Config{})
	}
	azure, _ := doc["azure"].(map[string]any)
	if principal, ok := azure["servicePrincipal"].(map[string]any); ok && isArc(azure) {
		delete(principal, "clientSecret")
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(doc)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

// isArc reports whether a section azure makes the machine an Arc machine (Azure.ArcEnabled).
func isArc(azure map[string]any) bool {
	arc, ok := azure["arc"].(map[string]any)
	return ok && arc["enabled"] != false
}
