package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// SchemaVersion is the schema of the bundles that this program reads and writes, major.minor. A
// change that older programs can ignore raises the minor version, any other the major one.
const SchemaVersion = "1.0"

// Resource identifies the flexNodeConfig of a configuration, as given in its bundle.
type Resource struct {
	// ID is its ARM id. UID is assigned at its creation and never changes: a resource that is deleted
	// and created again with the same name has another.
	ID  string `json:"id"`
	UID string `json:"uid"`
	// ConfigVersion is the version of the configuration. Within an Epoch it never goes back.
	ConfigVersion string `json:"configVersion"`
	Epoch         int64  `json:"epoch,omitempty"`
}

// ResourceOf returns the resource of a bundle, or nil. The error is of type Problems.
func ResourceOf(data []byte) (*Resource, error) {
	r := &report{}
	_, from := settingsOf(readDocument(data, r), r)
	return from, r.err(Config{})
}

// TokenOf returns the bootstrap token in a bundle; "" for none. The error is of type Problems.
func TokenOf(bundle []byte) (Secret, error) {
	r := &report{}
	doc, _ := settingsOf(readDocument(bundle, r), r)
	token, _ := objectAt(doc, "azure.bootstrapToken", false)["token"].(string)
	return Secret(token), r.err(Config{})
}

// WithToken sets the bootstrap token in a bundle that has an empty one.
func WithToken(bundle []byte, token Secret) ([]byte, error) {
	return changeAzure(bundle, func(azure map[string]any) bool {
		section, ok := azure["bootstrapToken"].(map[string]any)
		if !ok || len(section) > 0 {
			return false
		}
		section["token"] = token.Reveal()
		return true
	})
}

// Joining holds the members that only a machine's first bundle has, and that later ones keep.
type Joining struct {
	EnrolmentSecret string `json:"enrolmentSecret,omitempty"` // registers the machine's key
	// Root is the certificate of the root key that the machine trusts, in DER; nil for none.
	Root []byte `json:"root,omitempty"`
	// ProviderCA are the CAs, in PEM, trusted for the provider beside the system's; nil for none.
	ProviderCA []byte `json:"providerCA,omitempty"`
}

// WithJoining sets the members of a bundle that only a configuration URL delivers.
func WithJoining(bundle []byte, j Joining) ([]byte, error) {
	return change(bundle, func(whole map[string]any) bool {
		maps.DeleteFunc(whole, func(name string, _ any) bool { // encoding/json reads any case
			return slices.ContainsFunc([]string{"enrolmentSecret", "root", "providerCA"},
				func(own string) bool { return strings.EqualFold(name, own) })
		})
		whole["enrolmentSecret"], whole["root"] = j.EnrolmentSecret, j.Root
		if j.ProviderCA != nil {
			whole["providerCA"] = j.ProviderCA
		}
		return true
	})
}

// JoiningOf returns the members of a bundle that only a configuration URL delivers.
func JoiningOf(bundle []byte) (j Joining) {
	if json.Unmarshal(bundle, &j) != nil { // the bundle was parsed before
		return Joining{}
	}
	return j
}

// Covered returns the parts of a bundle that its signature covers: the configuration without
// secrets, as signed, and its resource. Read uses the same parts.
func Covered(bundle []byte) (content []byte, from Resource, err error) {
	r := &report{}
	doc := readDocument(bundle, r)
	settings, origin := unwrap(doc, r)
	resource := readResource(origin, r)
	if err := r.err(Config{}); err != nil {
		return nil, from, err
	}
	if _, versioned := doc["schemaVersion"]; !versioned || resource == nil {
		return nil, from, errors.New("it is not a bundle of a flexNodeConfig")
	}
	delete(objectAt(settings, "azure.servicePrincipal", false), "clientSecret")
	delete(objectAt(settings, "azure.bootstrapToken", false), "token")
	content, err = json.Marshal(settings)
	return content, *resource, err
}

// WithoutOnboarding removes the secret that enrols an Arc machine from a bundle.
func WithoutOnboarding(bundle []byte) ([]byte, error) {
	return changeAzure(bundle, eraseOnboarding)
}

// eraseOnboarding removes that secret from the section azure; false if not found.
func eraseOnboarding(azure map[string]any) bool {
	arc, ok := azure["arc"].(map[string]any)
	principal, _ := azure["servicePrincipal"].(map[string]any)
	if _, there := principal["clientSecret"]; !there || !ok || arc["enabled"] == false {
		return false
	}
	delete(principal, "clientSecret")
	return true
}

func changeAzure(bundle []byte, how func(azure map[string]any) bool) ([]byte, error) {
	return change(bundle, func(whole map[string]any) bool {
		azure := objectAt(whole, "config.azure", false)
		return azure != nil && how(azure)
	})
}

// change edits a bundle; an unchanged one stays byte for byte the same.
func change(bundle []byte, how func(whole map[string]any) bool) ([]byte, error) {
	whole, err := decodeObject(bundle)
	if err != nil {
		return nil, fmt.Errorf("cannot read the bundle: %w", err)
	}
	if !how(whole) {
		return bundle, nil
	}
	return json.MarshalIndent(whole, "", "  ")
}

// unwrap returns the configuration and the resource in a bundle. A document without a schemaVersion
// and with other members is not a bundle.
func unwrap(doc map[string]any, r *report) (settings map[string]any, origin any) {
	inner, ok := doc["config"].(map[string]any)
	origin, from := doc["resource"]
	schema, versioned := doc["schemaVersion"]
	size := 1
	if from {
		size = 2
	}
	if !ok || !versioned && len(doc) != size {
		return doc, nil
	}
	if versioned {
		readSchema(schema, r)
	}
	return inner, origin
}

// readSchema reads the schema version of a bundle. It is that of the replica that has sent it; the
// configuration may be of a newer one, so members may be unknown. A newer major version is the only
// problem reported.
func readSchema(schema any, r *report) {
	text, _ := schema.(string)
	major, ok := majorOf(text)
	ours, _ := majorOf(SchemaVersion)
	switch {
	case !ok:
		r.add("schemaVersion", "", "must be a version major.minor, such as \""+SchemaVersion+"\"")
	case major > ours:
		r.unreadable, r.problems = true, nil
		r.add("schemaVersion", show(text), fmt.Sprintf("this agent supports configurations of version "+
			"%d.x: update the agent on this machine (docs/how-to/upgrade.md)", ours))
	case major == ours:
		r.newer = true
	}
}

func majorOf(version string) (major int, ok bool) {
	first, second, _ := strings.Cut(version, ".")
	major, err := strconv.Atoi(first)
	_, failed := strconv.ParseUint(second, 10, 0)
	return major, err == nil && failed == nil && major > 0
}

// readResource reads the resource of a bundle; nil if unset. Newer providers may add members to it.
func readResource(origin any, r *report) *Resource {
	if origin == nil {
		return nil
	}
	resource := &Resource{}
	if given, ok := origin.(map[string]any); ok {
		known := map[string]any{}
		for _, f := range fields(reflect.TypeFor[Resource]()) {
			known[f.name] = given[f.name]
		}
		origin = known
	}
	r.decode(spot{name: "resource"}, origin, reflect.ValueOf(resource).Elem())
	if resource.Epoch < 0 {
		r.add("resource.epoch", "", "must be a whole number of at least 0")
	}
	return resource
}

// Canonical returns one spelling of a document: compact JSON with sorted names, without the bundle
// around it, with settings in place of aliases. Equal results mean equal documents. It fills in no
// defaults and checks no values; the error, of type Problems, reports what cannot be read. Secrets
// are in clear, except the one that enrols an Arc machine, which is erased from stored documents.
func Canonical(data []byte) ([]byte, error) {
	r := &report{}
	doc, _ := settingsOf(readDocument(data, r), r)
	if err := r.err(Config{}); err != nil {
		return nil, err
	}
	return canonical(doc)
}

// canonical is Canonical for settings that were read.
func canonical(doc map[string]any) ([]byte, error) {
	eraseOnboarding(objectAt(doc, "azure", false))
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(doc)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}
