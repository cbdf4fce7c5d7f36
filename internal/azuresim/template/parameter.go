package template

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// kinds are the types of parameters and outputs in Resource Manager's spelling.
var kinds = map[string]string{"string": "String", "securestring": "SecureString", "int": "Int",
	"bool": "Bool", "object": "Object", "secureobject": "SecureObject", "array": "Array"}

// fits reports whether a value has the type of a parameter or output.
func fits(declared string, v any) bool {
	switch strings.TrimPrefix(declared, "Secure") {
	case "String":
		return kind(v) == "String"
	case "Int":
		return kind(v) == "Integer"
	case "Bool":
		return kind(v) == "Boolean"
	case "Array":
		return kind(v) == "Array"
	}
	return kind(v) == "Object"
}

func secure(declared string) bool { return strings.HasPrefix(declared, "Secure") }

// Masked replaces secrets.
const Masked = "*******"

// mask masks a secret value, but not the names of an object's members.
func mask(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key := range v {
			out[key] = mask(v[key])
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = mask(v[i])
		}
		return out
	}
	return Masked
}

type parameter struct {
	kind     string
	fallback any
	optional bool
	allowed  []any
	limits   map[string]int64
}

func readParameter(name string, members map[string]any) (parameter, error) {
	p := parameter{limits: map[string]int64{}}
	bad := func(format string, args ...any) (parameter, error) {
		return p, problemf("The template parameter '%s' is not valid: %s", name,
			fmt.Sprintf(format, args...))
	}
	for _, member := range slices.Sorted(maps.Keys(members)) {
		v := members[member]
		ok := true
		switch member {
		case "type":
			text, _ := v.(string)
			p.kind, ok = kinds[strings.ToLower(text)]
		case "defaultValue":
			p.fallback, p.optional = v, true
		case "allowedValues":
			p.allowed, ok = v.([]any)
		case "minValue", "maxValue", "minLength", "maxLength":
			p.limits[member], ok = v.(int64)
		case "metadata":
		default:
			return bad("'%s' is not simulated", member)
		}
		if !ok {
			return bad("its %s is '%v'", member, v)
		}
	}
	if p.kind == "" {
		return bad("it has no type")
	}
	return p, nil
}

// accept checks a value. Errors do not contain secrets.
func (p parameter) accept(name string, v any) error {
	if !fits(p.kind, v) {
		return problemf("The provided value for the template parameter '%s' is not valid. Expected a "+
			"value of type '%s', but received a value of type '%s'. Please see "+
			"https://aka.ms/arm-create-parameter-file for usage details", name, p.kind, kind(v))
	}
	shown := text(v)
	if secure(p.kind) {
		shown = Masked
	}
	if p.allowed != nil && !slices.ContainsFunc(p.allowed,
		func(a any) bool { return reflect.DeepEqual(a, v) }) {
		var allowed []string
		for _, a := range p.allowed {
			allowed = append(allowed, text(a))
		}
		return problemf("The provided value '%s' for the template parameter '%s' is not valid. The "+
			"parameter value is not part of the allowed value(s): '%s'", shown, name,
			strings.Join(allowed, ","))
	}
	for _, limit := range slices.Sorted(maps.Keys(p.limits)) {
		n := int64(size(v))
		if strings.HasSuffix(limit, "Value") {
			n, _ = v.(int64)
		}
		if low := strings.HasPrefix(limit, "min"); low && n < p.limits[limit] ||
			!low && n > p.limits[limit] {
			return problemf("The provided value for the template parameter '%s' is not valid: its %s "+
				"is %d", name, limit, p.limits[limit])
		}
	}
	return nil
}

// bind sets every parameter to its given value, {"value": ...}, or its default.
func (t *Template) bind(s *scope, given map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, _, ok := fold(t.parameters, name); !ok {
			return problemf("The template parameters '%s' in the parameters file are not valid; they "+
				"are not present in the original template and can therefore not be provided at "+
				"deployment time. The only supported parameters for this template are '%s'. Please "+
				"see https://aka.ms/arm-pass-parameter-values for usage details", name,
				strings.Join(slices.Sorted(maps.Keys(t.parameters)), ", "))
		}
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(t.parameters)) {
		_, g, ok := fold(given, name)
		members, _ := g.(map[string]any)
		v, has := members["value"]
		switch {
		case ok && !has:
			return problemf("The template parameter '%s' is given in another way than by its value, "+
				"which is not simulated", name)
		case ok:
			if err := t.parameters[name].accept(name, v); err != nil {
				return err
			}
			s.parameters[strings.ToLower(name)] = v
		case t.parameters[name].optional:
			missing = append(missing, name)
		default:
			return problemf("The value for the template parameter '%s' is not provided. Please see "+
				"https://aka.ms/arm-create-parameter-file for usage details", name)
		}
	}
	return t.fallBack(s, missing)
}

// fallBack sets parameters to their defaults, which may depend on other parameters.
func (t *Template) fallBack(s *scope, missing []string) error {
	for len(missing) > 0 {
		var waiting []string
		var last error
		for _, name := range missing {
			v, err := s.value(t.parameters[name].fallback)
			if err != nil {
				waiting, last = append(waiting, name), err
				continue
			}
			if err := t.parameters[name].accept(name, v); err != nil {
				return err
			}
			s.parameters[strings.ToLower(name)] = v
		}
		if len(waiting) == len(missing) {
			return problemf("The default value of the template parameter '%s' is not valid: %v",
				waiting[0], last)
		}
		missing = waiting
	}
	return nil
}
