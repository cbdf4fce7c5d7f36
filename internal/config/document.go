package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// kind is the type of a JSON value, in words for users.
type kind string

const (
	anObject kind = "an object"
	aList    kind = "a list"
	aString  kind = "a string"
	aNumber  kind = "a number"
	aBoolean kind = "true or false"
	aNull    kind = "null"
)

// kindOf returns the type of a value that was decoded with numbers as written.
func kindOf(v any) kind {
	switch v.(type) {
	case nil:
		return aNull
	case json.Number: // also a string
		return aNumber
	}
	return kindOfType(reflect.TypeOf(v))
}

func decodeObject(data []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var o map[string]any
	err := decoder.Decode(&o)
	return o, err
}

// readDocument parses one JSON object, with numbers as written. Duplicate names are problems.
func readDocument(data []byte, r *report) map[string]any {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	what := cmp.Or(r.what, "configuration")
	if message := checkSyntax(data, what); message != "" {
		r.add("", "", message)
		r.unreadable = true
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	whole := r.readValue(decoder, "")
	doc, ok := whole.(map[string]any)
	if !ok {
		r.add("", "", fmt.Sprintf("the %s must be an object ({...}), not %s", what, kindOf(whole)))
		r.unreadable = true
	}
	return doc
}

// readValue reads the next value of a well-formed text. The first of duplicate members counts.
func (r *report) readValue(d *json.Decoder, path string) any {
	token, _ := d.Token()
	switch token {
	case json.Delim('{'):
		o := map[string]any{}
		for d.More() {
			key, _ := d.Token()
			name, _ := key.(string)
			at := member(path, name)
			value := r.readValue(d, at)
			if _, twice := o[name]; twice {
				r.add(at, "", "is given twice: keep one")
				continue
			}
			o[name] = value
		}
		_, _ = d.Token()
		return o
	case json.Delim('['):
		list := []any{}
		for d.More() {
			list = append(list, r.readValue(d, item(path, len(list))))
		}
		_, _ = d.Token()
		return list
	}
	return token
}

// checkSyntax returns where and why data is not JSON, or "". what names the document.
func checkSyntax(data []byte, what string) string {
	if len(bytes.TrimSpace(data)) == 0 {
		return "the " + what + " is empty"
	}
	if bad := invalidUTF8(data); bad >= 0 {
		return place(data, bad) + ": this is not UTF-8"
	}
	var raw json.RawMessage
	err := json.Unmarshal(data, &raw)
	if err == nil {
		return ""
	}
	at := 0
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = min(max(0, int(syntax.Offset)-1), len(data)-1)
	}
	return place(data, at) + ": " + err.Error()
}

func invalidUTF8(data []byte) int {
	for i, r := range string(data) {
		if r == utf8.RuneError && !bytes.HasPrefix(data[i:], []byte("\uFFFD")) {
			return i
		}
	}
	return -1
}

// place returns line and column (in characters, from 1) of an offset.
func place(data []byte, at int) string {
	head := data[:at]
	line := 1 + bytes.Count(head, []byte("\n"))
	column := 1 + utf8.RuneCount(head[bytes.LastIndexByte(head, '\n')+1:])
	return fmt.Sprintf("line %d, column %d", line, column)
}

// alias is another published name for a setting.
type alias struct {
	name, setting string              // their paths
	kind          kind                // the JSON type of the alias
	convert       func(string) string // from its value to the setting's; nil if they are the same
}

var aliases = []alias{
	{"components.kubernetes", "kubernetes.version", aString, nil},
	{"components.containerd", "containerd.version", aString, nil},
	{"components.runc", "runc.version", aString, nil},
	{"components.sandboxImage", "containerd.pauseImage", aString, nil},
	{"networking.cniVersion", "cni.version", aString, nil},
	{"networking.dnsServiceIP", "node.kubelet.dnsServiceIP", aString, nil},
	{"node.kubelet.clusterFQDN", "node.kubelet.serverURL", aString, serverURL},
	{"azure.servicePrincipal.clientTenant", "azure.servicePrincipal.tenantId", aString, nil},
	{"agent.enableDriftDetectionAndRemediation", "agent.driftPolicy", aBoolean, driftPolicy},
}

func serverURL(host string) string {
	if host == "" || strings.Contains(host, "://") {
		return host
	}
	return "https://" + host
}

func driftPolicy(remedy string) string {
	if remedy == "true" {
		return DriftRepair
	}
	return DriftOff
}

// rename replaces every alias in the document with its setting. It is a problem if both are set to
// different values. Remaining members of the objects that hold only aliases are unknown.
func rename(doc map[string]any, r *report) {
	for _, a := range aliases {
		parentPath, name := split(a.name)
		parent := objectAt(doc, parentPath, false)
		v, given := parent[name]
		if !given { // other readers may share the object
			continue
		}
		delete(parent, name)
		switch {
		case v == nil:
		case kindOf(v) != a.kind:
			r.add(a.name, "", fmt.Sprintf("must be %s, not %s", a.kind, kindOf(v)))
		default:
			a.set(doc, fmt.Sprint(v), r)
		}
	}
	for _, group := range []string{"components", "networking"} { // they hold only aliases
		v, given := doc[group]
		if !given {
			continue
		}
		members, ok := v.(map[string]any)
		if v != nil && !ok {
			r.add(group, "", fmt.Sprintf("must be an object, not %s", kindOf(v)))
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			r.unknown(group, name, nil)
		}
		delete(doc, group)
	}
}

// names lists the members that the object at a plain path can have, with a configuration's aliases.
func (r *report) names(path string, known []field) []string {
	var list []string
	for _, f := range known {
		list = append(list, f.name)
	}
	for _, a := range aliases {
		rest, below := strings.CutPrefix("."+a.name, strings.TrimSuffix("."+path, ".")+".")
		if name, _, _ := strings.Cut(rest, "."); below && r.what == "" && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

func (a alias) set(doc map[string]any, value string, r *report) {
	if a.convert != nil {
		value = a.convert(value)
	}
	parentPath, name := split(a.setting)
	parent := objectAt(doc, parentPath, true)
	if parent == nil || value == "" {
		return
	}
	switch parent[name] {
	case nil, "":
		parent[name] = value
		if r.written == nil {
			r.written = map[string]string{}
		}
		r.written[a.setting] = a.name
	case value:
	default:
		r.add(a.name, "", "is another name for "+a.setting+", which is set to another value: keep one")
	}
}

// objectAt returns the object at a plain path, created if made is set; nil if it is not an object.
func objectAt(doc map[string]any, path string, made bool) map[string]any {
	if path == "" {
		return doc
	}
	for name := range strings.SplitSeq(path, ".") {
		if made && doc != nil && doc[name] == nil {
			doc[name] = map[string]any{}
		}
		doc, _ = doc[name].(map[string]any)
	}
	return doc
}
