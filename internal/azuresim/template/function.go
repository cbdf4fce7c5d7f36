package template

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// function is a template function that takes from least to most arguments. A lazy function
// evaluates its arguments itself.
type function struct {
	least, most int
	call        func(*scope, []any) (any, error)
	lazy        func(*scope, []expression) (any, error)
}

const many = 1000

// table holds every function but list*, by name in lower case.
var table = map[string]function{
	"parameters":             {1, 1, parameterOf, nil},
	"variables":              {1, 1, variableOf, nil},
	"deployment":             {0, 0, placed(func(p Place) any { return p.Deployment }), nil},
	"subscription":           {0, 0, placed(func(p Place) any { return p.Subscription }), nil},
	"resourcegroup":          {0, 0, placed(func(p Place) any { return p.ResourceGroup }), nil},
	"resourceid":             {2, many, resourceID, nil},
	"subscriptionresourceid": {2, many, subscriptionResourceID, nil},
	"extensionresourceid":    {3, many, extensionResourceID, nil},
	"reference":              {1, 3, reference, nil},

	"concat":     {1, many, concat, nil},
	"format":     {1, many, format, nil},
	"tolower":    {1, 1, mapped(strings.ToLower), nil},
	"toupper":    {1, 1, mapped(strings.ToUpper), nil},
	"trim":       {1, 1, mapped(strings.TrimSpace), nil},
	"base64":     {1, 1, mapped(encode), nil},
	"replace":    {3, 3, replace, nil},
	"split":      {2, 2, split, nil},
	"join":       {2, 2, join, nil},
	"startswith": {2, 2, tested(strings.HasPrefix), nil},
	"endswith":   {2, 2, tested(strings.HasSuffix), nil},
	"string":     {1, 1, func(_ *scope, a []any) (any, error) { return text(a[0]), nil }, nil},
	"int":        {1, 1, integer, nil},
	"json":       {1, 1, parsed, nil},

	"if":       {3, 3, nil, chosen},
	"and":      {2, many, all, nil},
	"or":       {2, many, some, nil},
	"not":      {1, 1, not, nil},
	"equals":   {2, 2, equal, nil},
	"coalesce": {1, many, coalesce, nil},
	"true":     {0, 0, constant(true), nil},
	"false":    {0, 0, constant(false), nil},
	"null":     {0, 0, constant(nil), nil},

	"empty":        {1, 1, empty, nil},
	"length":       {1, 1, length, nil},
	"contains":     {2, 2, contains, nil},
	"union":        {1, many, union, nil},
	"createarray":  {0, many, func(_ *scope, a []any) (any, error) { return a, nil }, nil},
	"createobject": {0, many, createObject, nil},
}

// find returns the called function, or an error if it does not exist or takes another number of
// arguments.
func find(c call) (function, error) {
	name := strings.ToLower(c.name)
	f, ok := table[name]
	if action, list := strings.CutPrefix(name, "list"); list && action != "" {
		f, ok = function{2, 3, func(s *scope, a []any) (any, error) {
			return listed(s, c.name, a)
		}, nil}, true
	}
	if !ok {
		return f, problemf("The template function '%s' is not valid. The functions of this simulated "+
			"Azure are '%s' and list*", c.name, strings.Join(slices.Sorted(maps.Keys(table)), ", "))
	}
	if n := len(c.arguments); n < f.least || n > f.most {
		return f, problemf("Unable to evaluate template language function '%s': %d arguments are not "+
			"what it takes. Please see https://aka.ms/arm-functions for usage details", c.name, n)
	}
	return f, nil
}

func constant(v any) func(*scope, []any) (any, error) {
	return func(*scope, []any) (any, error) { return v, nil }
}

func placed(f func(Place) any) func(*scope, []any) (any, error) {
	return func(s *scope, _ []any) (any, error) { return f(s.place), nil }
}

func equal(_ *scope, a []any) (any, error) { return reflect.DeepEqual(a[0], a[1]), nil }

func mapped(f func(string) string) func(*scope, []any) (any, error) {
	return func(_ *scope, a []any) (any, error) {
		text, err := arg[string](a, 0)
		return f(text), err
	}
}

// tested returns a function on two strings that ignores case.
func tested(f func(a, b string) bool) func(*scope, []any) (any, error) {
	return func(_ *scope, a []any) (any, error) {
		texts, err := args[string](a, 0)
		return err == nil && f(strings.ToLower(texts[0]), strings.ToLower(texts[1])), err
	}
}

func encode(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func parameterOf(s *scope, a []any) (any, error) {
	name, err := arg[string](a, 0)
	if err != nil {
		return nil, err
	}
	return s.parameter(name)
}

func variableOf(s *scope, a []any) (any, error) {
	name, err := arg[string](a, 0)
	if err != nil {
		return nil, err
	}
	return s.variable(name)
}

// text returns a value as a string.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool: // as .NET writes it
		if v {
			return "True"
		}
		return "False"
	}
	encoded, _ := json.Marshal(v) // it was decoded from JSON
	return string(encoded)
}

func concat(_ *scope, a []any) (any, error) {
	if _, ok := a[0].([]any); ok {
		lists, err := args[[]any](a, 0)
		return slices.Concat(lists...), err
	}
	var out strings.Builder
	for at, v := range a {
		switch v.(type) {
		case []any, map[string]any, nil:
			return nil, typeError{at, "String", kind(v)}
		}
		out.WriteString(text(v))
	}
	return out.String(), nil
}

// format replaces {0}, {1}, ... by values; {{ and }} stand for braces.
func format(s *scope, a []any) (any, error) {
	pattern, err := arg[string](a, 0)
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	for at := 0; at < len(pattern); at++ {
		c := pattern[at]
		if c != '{' && c != '}' {
			out.WriteByte(c)
			continue
		}
		if at+1 < len(pattern) && pattern[at+1] == c {
			out.WriteByte(c)
			at++
			continue
		}
		inner, _, closed := strings.Cut(pattern[at+1:], "}")
		n, err := strconv.Atoi(inner)
		if c == '}' || !closed || err != nil || n < 0 || n >= len(a)-1 {
			return nil, problemf("Unable to evaluate template language function 'format': '%s' is not "+
				"a pattern for %d values", pattern, len(a)-1)
		}
		value := text(a[n+1])
		if err := s.grow(len(value)); err != nil {
			return nil, err
		}
		out.WriteString(value)
		at += len(inner) + 1
	}
	return out.String(), nil
}

func replace(s *scope, a []any) (any, error) {
	t, err := args[string](a, 0)
	if err != nil {
		return nil, err
	}
	if err := s.grow(strings.Count(t[0], t[1]) * len(t[2])); err != nil {
		return nil, err
	}
	return strings.ReplaceAll(t[0], t[1], t[2]), nil
}

func split(_ *scope, a []any) (any, error) {
	t, err := args[string](a, 0)
	if err != nil {
		return nil, err
	}
	parts := []any{}
	for part := range strings.SplitSeq(t[0], t[1]) {
		parts = append(parts, part)
	}
	return parts, nil
}

func join(s *scope, a []any) (any, error) {
	list, err := arg[[]any](a, 0)
	if err != nil {
		return nil, err
	}
	by, err := arg[string](a, 1)
	if err == nil {
		err = s.grow(len(list) * len(by))
	}
	if err != nil {
		return nil, err
	}
	var parts []string
	for _, v := range list {
		parts = append(parts, text(v))
	}
	return strings.Join(parts, by), nil
}

func integer(_ *scope, a []any) (any, error) {
	if n, ok := a[0].(int64); ok {
		return n, nil
	}
	t, err := arg[string](a, 0)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(t, 10, 64)
	if err != nil {
		return nil, problemf("Unable to evaluate template language function 'int': '%s' is no integer",
			t)
	}
	return n, nil
}

func parsed(_ *scope, a []any) (any, error) {
	t, err := arg[string](a, 0)
	if err != nil {
		return nil, err
	}
	v, err := Decode([]byte(t))
	if err != nil {
		return nil, problemf("Unable to evaluate template language function 'json': the text is not " +
			"JSON")
	}
	return v, nil
}

// chosen evaluates the condition and then only the chosen value.
func chosen(s *scope, a []expression) (any, error) {
	v, err := a[0].eval(s)
	if err != nil {
		return nil, err
	}
	which, ok := v.(bool)
	if !ok {
		return nil, problemf("The template language function 'if' expects its parameter '1' to be of "+
			"type 'Boolean'. The provided value is of type '%s'", kind(v))
	}
	if which {
		return a[1].eval(s)
	}
	return a[2].eval(s)
}

func all(_ *scope, a []any) (any, error) {
	values, err := args[bool](a, 0)
	return !slices.Contains(values, false), err
}

func some(_ *scope, a []any) (any, error) {
	values, err := args[bool](a, 0)
	return slices.Contains(values, true), err
}

func not(_ *scope, a []any) (any, error) {
	v, err := arg[bool](a, 0)
	return !v, err
}

func coalesce(_ *scope, a []any) (any, error) {
	for _, v := range a {
		if v != nil {
			return v, nil
		}
	}
	return nil, nil
}

// size returns the length of a string, list or object; negative for anything else.
func size(v any) int {
	switch v := v.(type) {
	case nil:
		return 0
	case string:
		return len([]rune(v))
	case []any:
		return len(v)
	case map[string]any:
		return len(v)
	}
	return -1
}

func empty(_ *scope, a []any) (any, error) {
	n := size(a[0])
	if n < 0 {
		return nil, typeError{0, "Object, Array, String", kind(a[0])}
	}
	return n == 0, nil
}

func length(_ *scope, a []any) (any, error) {
	n := size(a[0])
	if n < 0 || a[0] == nil {
		return nil, typeError{0, "Object, Array, String", kind(a[0])}
	}
	return int64(n), nil
}

func contains(_ *scope, a []any) (any, error) {
	switch in := a[0].(type) {
	case string:
		return strings.Contains(in, text(a[1])), nil
	case []any:
		return slices.ContainsFunc(in, func(v any) bool { return reflect.DeepEqual(v, a[1]) }), nil
	case map[string]any:
		name, err := arg[string](a, 1)
		_, there := property(in, name)
		return there, err
	}
	return nil, typeError{0, "Object, Array, String", kind(a[0])}
}

// union returns the distinct elements of lists, or objects merged.
func union(_ *scope, a []any) (any, error) {
	if _, ok := a[0].([]any); ok {
		lists, err := args[[]any](a, 0)
		out := []any{}
		for _, v := range slices.Concat(lists...) {
			if !slices.ContainsFunc(out, func(o any) bool { return reflect.DeepEqual(o, v) }) {
				out = append(out, v)
			}
		}
		return out, err
	}
	objects, err := args[map[string]any](a, 0)
	out := map[string]any{}
	for _, o := range objects {
		out = laid(out, o)
	}
	return out, err
}

// laid returns an object merged with another, which wins, at every level.
func laid(under, over map[string]any) map[string]any {
	out := maps.Clone(under)
	for key, v := range over {
		below, ok := out[key].(map[string]any)
		if above, both := v.(map[string]any); ok && both {
			v = laid(below, above)
		}
		out[key] = v
	}
	return out
}

func createObject(_ *scope, a []any) (any, error) {
	if len(a)%2 != 0 {
		return nil, problemf("Unable to evaluate template language function 'createObject': the " +
			"arguments are to be pairs of a name and a value")
	}
	out := map[string]any{}
	for at := 0; at < len(a); at += 2 {
		name, err := arg[string](a, at)
		if err != nil {
			return nil, err
		}
		out[name] = a[at+1]
	}
	return out, nil
}
