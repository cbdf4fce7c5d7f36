package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
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
	azure := doc.get("azure")
	if principal := azure.get("servicePrincipal"); principal != nil && isArc(azure) {
		principal.members = slices.DeleteFunc(principal.members, func(m entry) bool {
			return m.name == "clientSecret"
		})
	}
	return doc.append(nil), nil
}

// isArc tells whether a section azure makes the machine an Arc machine (Azure.ArcEnabled).
func isArc(azure *value) bool {
	arc := azure.get("arc")
	enabled := arc.get("enabled")
	return arc != nil && arc.kind == anObject && (enabled == nil || enabled.text != "false")
}

// append writes the value as compact JSON.
func (v *value) append(b []byte) []byte {
	switch v.kind {
	case anObject:
		members := slices.SortedFunc(slices.Values(v.members), func(a, b entry) int {
			return cmp.Compare(a.name, b.name)
		})
		b = append(b, '{')
		for i, m := range members {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, m.name), ':')
			b = m.value.append(b)
		}
		return append(b, '}')
	case aList:
		b = append(b, '[')
		for i, next := range v.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = next.append(b)
		}
		return append(b, ']')
	case aString:
		return appendString(b, v.text)
	case aNull:
		return append(b, "null"...)
	}
	return append(b, v.text...) // a number, true or false, as it was written
}

// appendString writes a string as JSON, without the escapes that only HTML needs.
func appendString(b []byte, s string) []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string and a buffer give no error
	return append(b, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...)
}
