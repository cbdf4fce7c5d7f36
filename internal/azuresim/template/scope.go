package template

import (
	"errors"
	"maps"
	"slices"
	"strings"
)

// Runtime gives a template access to deployed resources.
type Runtime interface {
	// Reference returns a resource's properties, or all of it if full. The version may be empty.
	Reference(id, version string, full bool) (any, error)
	// List calls an action of a resource; body may be nil.
	List(action, id, version string, body any) (any, error)
}

// scope holds the context in which expressions are evaluated.
type scope struct {
	place      Place
	parameters map[string]any // by name in lower case, as are variables
	variables  map[string]any
	under      []string // variables being evaluated
	runtime    Runtime  // nil where resources cannot be read
	grown      int      // total size of function results
}

// errLater is the error for values that are known only when resources are deployed.
var errLater = errors.New("it is known when the resources are deployed")

// later is the Runtime before the deployment.
type later struct{}

func (later) Reference(string, string, bool) (any, error)   { return nil, errLater }
func (later) List(string, string, string, any) (any, error) { return nil, errLater }

// value evaluates all expressions in a value of the template.
func (s *scope) value(v any) (any, error) {
	switch v := v.(type) {
	case string:
		return s.text(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			var err error
			if out[i], err = s.value(v[i]); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			name, err := s.text(key)
			if err != nil {
				return nil, err
			}
			member, err := s.value(v[key])
			if err != nil {
				return nil, err
			}
			text, ok := name.(string)
			if !ok {
				return nil, problemf("The name of a property is to be a string, not %s", kind(name))
			}
			out[text] = member
		}
		return out, nil
	}
	return v, nil
}

// text evaluates a string, which may be an expression.
func (s *scope) text(text string) (any, error) {
	inner, ok := bracketed(text)
	if !ok {
		if strings.HasPrefix(text, "[[") && strings.HasSuffix(text, "]") {
			return text[1:], nil
		}
		return text, nil
	}
	e, err := parse(inner)
	if err != nil {
		return nil, err
	}
	v, err := e.eval(s)
	if _, kept := s.runtime.(later); kept && errors.Is(err, errLater) {
		return text, nil
	}
	return v, err
}

// str evaluates a value that must be a string.
func (s *scope) str(v any) (string, error) {
	v, err := s.value(v)
	if err != nil {
		return "", err
	}
	text, ok := v.(string)
	if !ok {
		return "", problemf("Expected a value of type 'String', but received a value of type '%s'",
			kind(v))
	}
	return text, nil
}

func (s *scope) variable(name string) (any, error) {
	key := strings.ToLower(name)
	v, ok := s.variables[key]
	if !ok {
		return nil, problemf("The template variable '%s' is not found. Please see "+
			"https://aka.ms/arm-syntax-variables for usage details", name)
	}
	if slices.Contains(s.under, key) {
		return nil, problemf("The template variable '%s' refers to itself", name)
	}
	s.under = append(s.under, key)
	defer func() { s.under = s.under[:len(s.under)-1] }()
	before := s.runtime
	s.runtime = nil
	defer func() { s.runtime = before }()
	return s.value(v)
}

func (s *scope) parameter(name string) (any, error) {
	v, ok := s.parameters[strings.ToLower(name)]
	if !ok {
		return nil, problemf("The template parameter '%s' is not found. Please see "+
			"https://aka.ms/arm-syntax-parameters for usage details", name)
	}
	return v, nil
}

func (l literal) eval(*scope) (any, error) { return l.value, nil }

func (c call) eval(s *scope) (any, error) {
	f, err := find(c)
	if err != nil {
		return nil, err
	}
	if f.lazy != nil {
		return f.lazy(s, c.arguments)
	}
	values := make([]any, len(c.arguments))
	for i, argument := range c.arguments {
		if values[i], err = argument.eval(s); err != nil {
			return nil, err
		}
	}
	v, err := f.call(s, values)
	if err == nil {
		err = s.grow(weight(v, largest))
	}
	var wrong typeError
	if errors.As(err, &wrong) {
		return nil, problemf("The template language function '%s' expects its parameter '%d' to be "+
			"of type '%s'. The provided value is of type '%s'. Please see "+
			"https://aka.ms/arm-functions for usage details", c.name, wrong.at+1, wrong.want, wrong.got)
	}
	return v, err
}

// largest limits the total size of function results, in characters and members. It is Resource
// Manager's limit for an evaluated template.
const largest = 4 << 20

// grow adds to the total size and returns an error above the limit.
func (s *scope) grow(by int) error {
	if s.grown += by; s.grown > largest {
		return problemf("What the template has when it is evaluated is larger than %d characters",
			largest)
	}
	return nil
}

// weight returns the size of a value, or more than most without counting on: a value may contain
// another many times.
func weight(v any, most int) int {
	n := 1
	switch v := v.(type) {
	case string:
		return n + len(v)
	case []any:
		for i := 0; i < len(v) && n <= most; i++ {
			n += weight(v[i], most-n)
		}
	case map[string]any:
		for key, member := range v {
			if n += len(key) + weight(member, most-n); n > most {
				break
			}
		}
	}
	return n
}

func (m member) eval(s *scope) (any, error) {
	of, err := m.of.eval(s)
	if err != nil {
		return nil, err
	}
	key, err := m.key.eval(s)
	if err != nil {
		return nil, err
	}
	switch of := of.(type) {
	case map[string]any:
		if name, ok := key.(string); ok {
			if v, ok := property(of, name); ok {
				return v, nil
			}
			return nil, problemf("The language expression property '%s' doesn't exist, available "+
				"properties are '%s'", name, strings.Join(slices.Sorted(maps.Keys(of)), ", "))
		}
	case []any:
		if i, ok := key.(int64); ok {
			if i < 0 || i >= int64(len(of)) {
				return nil, problemf("The language expression property array index '%d' is out of "+
					"bounds", i)
			}
			return of[i], nil
		}
	}
	return nil, problemf("The language expression property '%v' can't be evaluated: it is of a "+
		"value of type '%s'", key, kind(of))
}

// property returns a member of an object by its name, ignoring case.
func property(of map[string]any, name string) (any, bool) {
	if v, ok := of[name]; ok {
		return v, true
	}
	for key, v := range of {
		if strings.EqualFold(key, name) {
			return v, true
		}
	}
	return nil, false
}

// kind returns Resource Manager's name for the type of a value.
func kind(v any) string {
	switch v.(type) {
	case nil:
		return "Null"
	case string:
		return "String"
	case int64:
		return "Integer"
	case float64:
		return "Float"
	case bool:
		return "Boolean"
	case []any:
		return "Array"
	}
	return "Object"
}
