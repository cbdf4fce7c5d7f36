// Package template implements the language of Resource Manager's templates as far as a template
// needs it that deploys flex nodes: parameters, variables, resources, outputs, and some forty
// functions. It is pure: a Runtime reads deployed resources. It refuses what it does not implement.
package template

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Template is a parsed and checked template: every function, parameter and variable that it uses
// exists.
type Template struct {
	parameters map[string]parameter // by name, as are variables and outputs
	variables  map[string]any
	resources  []source
	outputs    map[string]output
}

// source is a resource as written, with the resources that it is nested in.
type source struct {
	members map[string]any
	parents []map[string]any
}

type output struct {
	kind      string
	value     any
	condition any
}

// Place describes the scope of a deployment: the results of subscription(), resourceGroup() and
// deployment().
type Place struct {
	Subscription, ResourceGroup, Deployment map[string]any
}

func (p Place) subscription() string { return p.Subscription["subscriptionId"].(string) }

func (p Place) group() string { return p.ResourceGroup["name"].(string) }

// Decode decodes JSON, with int64 for integers.
func Decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return plain(v), nil
}

func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // it came from JSON
		return f
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = plain(v[key])
		}
	}
	return v
}

// Read parses a template from JSON.
func Read(text []byte) (*Template, error) {
	v, err := Decode(text)
	if err != nil {
		return nil, problemf("The template is not JSON: %v", err)
	}
	members, ok := v.(map[string]any)
	if !ok {
		return nil, problemf("The template is not an object")
	}
	t := &Template{parameters: map[string]parameter{}, variables: map[string]any{},
		outputs: map[string]output{}}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if err := t.section(name, members[name]); err != nil {
			return nil, err
		}
	}
	if schema, _ := members["$schema"].(string); !strings.Contains(strings.ToLower(schema),
		"/deploymenttemplate.json") {
		return nil, problemf("The $schema '%s' is not that of a template for a resource group", schema)
	}
	if _, ok := members["contentVersion"].(string); !ok {
		return nil, problemf("The template has no contentVersion")
	}
	return t, t.check()
}

// section reads one member of a template.
func (t *Template) section(name string, v any) error {
	object, isObject := v.(map[string]any)
	switch {
	case name == "$schema" || name == "contentVersion" || name == "metadata" || size(v) == 0:
		return nil
	case name == "resources":
		list, ok := v.([]any)
		if !ok {
			return problemf("Resources with symbolic names (languageVersion 2.0) are not simulated")
		}
		return t.flatten(list, nil)
	case !isObject || !slices.Contains([]string{"parameters", "variables", "outputs"}, name):
		return problemf("The member '%s' of a template is not simulated", name)
	case name == "variables":
		t.variables = object
		if _, copies := object["copy"]; copies {
			return problemf("'copy' is not simulated, in the variables")
		}
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		declared, ok := object[key].(map[string]any)
		if !ok {
			return problemf("The member '%s' of '%s' is not an object", key, name)
		}
		var err error
		if name == "parameters" {
			t.parameters[key], err = readParameter(key, declared)
		} else {
			t.outputs[key], err = readOutput(key, declared)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func readOutput(name string, members map[string]any) (output, error) {
	o := output{value: members["value"], condition: members["condition"]}
	text, _ := members["type"].(string)
	if o.kind = kinds[strings.ToLower(text)]; o.kind == "" {
		return o, problemf("The template output '%s' is not valid: its type is '%s'", name, text)
	}
	if _, copies := members["copy"]; copies {
		return o, problemf("'copy' is not simulated, in the template output '%s'", name)
	}
	return o, nil
}

// resourceMembers are the allowed members of a resource; true if they are sent to its provider.
var resourceMembers = map[string]bool{
	"type": false, "apiVersion": false, "name": false, "dependsOn": false, "condition": false,
	"comments": false, "metadata": false, "resources": false,
	"location": true, "tags": true, "sku": true, "kind": true, "identity": true, "plan": true,
	"zones": true, "properties": true, "managedBy": true, "extendedLocation": true,
}

// maxResources is Resource Manager's max number of resources in a template.
const maxResources = 800

// flatten collects resources and those nested in them.
func (t *Template) flatten(list []any, parents []map[string]any) error {
	for _, v := range list {
		members, ok := v.(map[string]any)
		if !ok {
			return problemf("A resource of the template is not an object")
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			_, known := resourceMembers[name]
			_, isList := members[name].([]any)
			switch {
			case !known:
				return problemf("'%s' is not simulated, in the template resource '%v'", name,
					members["name"])
			case (name == "dependsOn" || name == "resources") && !isList && members[name] != nil:
				return problemf("'%s' is not a list, in the template resource '%v'", name,
					members["name"])
			}
		}
		if t.resources = append(t.resources, source{members, parents}); len(t.resources) > maxResources {
			return problemf("The template has more than %d resources", maxResources)
		}
		nested, _ := members["resources"].([]any)
		below := append(slices.Clone(parents), members)
		if err := t.flatten(nested, below); err != nil {
			return err
		}
	}
	return nil
}

// check checks every expression, even if it is never evaluated.
func (t *Template) check() error {
	places := map[string]any{}
	for name, p := range t.parameters {
		places["parameter '"+name+"'"] = p.fallback
	}
	for name, v := range t.variables {
		places["variable '"+name+"'"] = v
	}
	resources := map[string][]any{}
	for _, r := range t.resources {
		members := maps.Clone(r.members)
		delete(members, "resources")
		name := fmt.Sprintf("resource '%v'", r.members["name"])
		resources[name] = append(resources[name], members)
	}
	for name, all := range resources {
		places[name] = all
	}
	for name, o := range t.outputs {
		places["output '"+name+"'"] = []any{o.value, o.condition}
	}
	for _, place := range slices.Sorted(maps.Keys(places)) {
		if err := t.checkValue(places[place]); err != nil {
			return problemf("The template %s is not valid: %v", place, err)
		}
	}
	return nil
}

func (t *Template) checkValue(v any) error {
	switch v := v.(type) {
	case string:
		inner, ok := bracketed(v)
		if !ok {
			return nil
		}
		e, err := parse(inner)
		if err != nil {
			return err
		}
		return e.calls(t.checkCall)
	case []any:
		for _, item := range v {
			if err := t.checkValue(item); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if err := t.checkValue([]any{key, v[key]}); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkCall returns an error unless the function exists, and the parameter or variable that it
// names.
func (t *Template) checkCall(c call) error {
	if _, err := find(c); err != nil {
		return err
	}
	if len(c.arguments) != 1 {
		return nil
	}
	named, _ := c.arguments[0].(literal)
	name, _ := named.value.(string)
	empty := &scope{parameters: map[string]any{}, variables: map[string]any{}}
	switch strings.ToLower(c.name) {
	case "parameters":
		if _, _, ok := fold(t.parameters, name); !ok && name != "" {
			_, err := empty.parameter(name)
			return err
		}
	case "variables":
		if _, _, ok := fold(t.variables, name); !ok && name != "" {
			_, err := empty.variable(name)
			return err
		}
	}
	return nil
}

// fold returns a member by its name, ignoring case.
func fold[V any](in map[string]V, name string) (string, V, bool) {
	for key, v := range in {
		if strings.EqualFold(key, name) {
			return key, v, true
		}
	}
	var none V
	return "", none, false
}
