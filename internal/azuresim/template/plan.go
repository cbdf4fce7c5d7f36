package template

import (
	"errors"
	"maps"
	"slices"
	"strings"
)

// Plan is a template with its parameters, bound to a place.
type Plan struct {
	// Resources are the resources whose condition is true, in the template's order.
	Resources []Resource
	// Parameters can be shown: {"type": ..., "value": ...}, without the value if it is a secret.
	Parameters map[string]any

	template *Template
	scope    scope
	named    map[string]int // index in Resources, by each name of a resource
}

// Resource is a resource to deploy.
type Resource struct {
	ID, Type, Name, Version string
	// Depends are the ids in the template's dependsOn.
	Depends []string

	body map[string]any
}

// Bind returns the plan for parameters, which are JSON, {name: {"value": ...}}, or empty.
func (t *Template) Bind(parameters []byte, place Place) (*Plan, error) {
	var given map[string]any
	if len(parameters) > 0 {
		v, err := Decode(parameters)
		object, ok := v.(map[string]any)
		if err != nil || !ok && v != nil {
			return nil, problemf("The parameters are not an object")
		}
		given = object
	}
	p := &Plan{template: t, Parameters: map[string]any{},
		scope: scope{place: place, parameters: map[string]any{}, variables: map[string]any{}}}
	for name, v := range t.variables {
		p.scope.variables[strings.ToLower(name)] = v
	}
	if err := t.bind(&p.scope, given); err != nil {
		return nil, err
	}
	for name, declared := range t.parameters {
		shown := map[string]any{"type": declared.kind}
		if !secure(declared.kind) {
			shown["value"] = p.scope.parameters[strings.ToLower(name)]
		}
		p.Parameters[name] = shown
	}
	var skipped []Resource
	for _, source := range t.resources {
		r, wanted, err := p.resource(source)
		if err != nil {
			return nil, problemf("Unable to process template language expressions for resource '%v': "+
				"'%v'", source.members["name"], err)
		}
		if wanted {
			p.Resources = append(p.Resources, r)
		} else {
			skipped = append(skipped, r)
		}
	}
	return p, p.connect(skipped)
}

// resource evaluates what the plan needs of a resource. It also reports whether its condition is
// true.
func (p *Plan) resource(source source) (Resource, bool, error) {
	r := Resource{body: map[string]any{}}
	wanted := true
	for _, members := range append(slices.Clone(source.parents), source.members) {
		own, err := p.scope.str(members["type"])
		if err != nil {
			return r, false, err
		}
		name, err := p.scope.str(members["name"])
		if err != nil {
			return r, false, err
		}
		if r.Type != "" {
			own, name = r.Type+"/"+own, r.Name+"/"+name
		}
		r.Type, r.Name = own, name
		holds := any(true)
		if condition, ok := members["condition"]; ok {
			if holds, err = p.scope.value(condition); err != nil {
				return r, false, err
			}
		}
		yes, ok := holds.(bool)
		if !ok {
			return r, false, problemf("Its condition is of type '%s'", kind(holds))
		}
		wanted = wanted && yes
	}
	var err error
	if r.Version, err = p.scope.str(source.members["apiVersion"]); err != nil {
		return r, false, err
	}
	if err := r.identify(p.scope.place); err != nil {
		return r, false, err
	}
	depends, _ := source.members["dependsOn"].([]any)
	for _, d := range depends {
		on, err := p.scope.str(d)
		if err != nil {
			return r, false, err
		}
		r.Depends = append(r.Depends, on)
	}
	for name, v := range source.members {
		if resourceMembers[name] {
			r.body[name] = v
		}
	}
	return r, wanted, nil
}

// identify sets the resource's id.
func (r *Resource) identify(place Place) error {
	types, names := strings.Split(r.Type, "/"), strings.Split(r.Name, "/")
	switch {
	case len(types) < 2 || len(names) != len(types)-1 || slices.Contains(names, ""):
		return problemf("The template resource '%s' for type '%s' has incorrect segment lengths. A "+
			"nested resource type must have identical number of segments as its resource name. A "+
			"root resource type must have segment length one greater than its resource name. "+
			"Please see https://aka.ms/arm-syntax-resources for usage details", r.Name, r.Type)
	case strings.EqualFold(types[0], "Microsoft.Resources"):
		return problemf("Resources of type '%s' are not simulated in templates", r.Type)
	case slices.Contains(types, "providers"):
		return problemf("Extension resources, such as '%s', are not simulated in templates", r.Type)
	}
	var err error
	r.ID, err = below("/subscriptions/"+place.subscription()+"/resourceGroups/"+place.group(),
		r.Type, names)
	return err
}

// connect resolves dependencies to ids, without resources that are not deployed, and refuses
// cycles.
func (p *Plan) connect(skipped []Resource) error {
	p.named = names(p.Resources)
	left := names(skipped)
	for i := range p.Resources {
		r := &p.Resources[i]
		if p.named[called(r.ID)] != i {
			return problemf("The resource '%s' is defined multiple times in a template. Please see "+
				"https://aka.ms/arm-syntax-resources for usage details", r.ID)
		}
		var ids []string
		for _, on := range r.Depends {
			if other, ok := p.Named(on); ok {
				ids = append(ids, other.ID)
			} else if _, ok := left[called(on)]; !ok {
				return problemf("The resource '%s' is not defined in the template. Please see "+
					"https://aka.ms/arm-template for usage details", on)
			}
		}
		r.Depends = ids
	}
	seen := make([]visit, len(p.Resources))
	for i := range p.Resources {
		if err := p.circle(i, seen); err != nil {
			return err
		}
	}
	return nil
}

// visit is the state of a resource in the search for cycles.
type visit int

const (
	isUnder visit = iota + 1 // its dependencies are being visited
	isSound
)

// circle returns an error if a resource depends on itself.
func (p *Plan) circle(i int, seen []visit) error {
	switch seen[i] {
	case isSound:
		return nil
	case isUnder:
		return problemf("Circular dependency detected on resource: '%s'. Please see "+
			"https://aka.ms/arm-syntax-resources for usage details", p.Resources[i].ID)
	}
	seen[i] = isUnder
	for _, id := range p.Resources[i].Depends {
		if err := p.circle(p.named[called(id)], seen); err != nil {
			return err
		}
	}
	seen[i] = isSound
	return nil
}

// Named returns a resource of the plan by its id or name.
func (p *Plan) Named(name string) (Resource, bool) {
	i, ok := p.named[called(name)]
	if !ok {
		return Resource{}, false
	}
	return p.Resources[i], true
}

// called returns a name in the form for comparison.
func called(name string) string { return "/" + strings.Trim(strings.ToLower(name), "/") }

// names maps every name of each resource to its index. The first resource with a name has it.
func names(of []Resource) map[string]int {
	all := map[string]int{}
	for i, r := range of {
		id := called(r.ID)
		_, relative, _ := strings.Cut(id, "/providers")
		for _, name := range []string{id, relative, called(r.Name), called(r.Type + "/" + r.Name)} {
			if _, taken := all[name]; !taken {
				all[name] = i
			}
		}
	}
	return all
}

// Body returns the body of the PUT that creates the resource.
func (p *Plan) Body(r Resource, with Runtime) (map[string]any, error) {
	s := p.scope
	s.runtime, s.grown = with, 0
	v, err := s.value(r.body)
	body, _ := v.(map[string]any)
	return body, err
}

// Preview returns the body as far as known before the deployment, with secrets masked. Expressions
// that need a deployed resource stay expressions.
func (p *Plan) Preview(r Resource) (map[string]any, error) {
	s := p.scope
	s.runtime, s.parameters, s.grown = later{}, maps.Clone(s.parameters), 0
	for name, declared := range p.template.parameters {
		if key := strings.ToLower(name); secure(declared.kind) {
			s.parameters[key] = mask(s.parameters[key])
		}
	}
	v, err := s.value(r.body)
	body, _ := v.(map[string]any)
	return body, err
}

// Check evaluates everything that can be known before the deployment.
func (p *Plan) Check() error {
	for _, r := range p.Resources {
		if _, err := p.Body(r, later{}); err != nil {
			return problemf("Unable to process template language expressions for resource '%s': '%v'",
				r.ID, err)
		}
	}
	_, err := p.Outputs(later{})
	var failed OutputError
	if errors.As(err, &failed) {
		return problemf("The template output '%s' is not valid: %v", failed.Name, failed.Err)
	}
	return err
}

// OutputError is the error of an output that cannot be evaluated.
type OutputError struct {
	Name string
	Err  error
}

func (e OutputError) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e OutputError) Unwrap() error { return e.Err }

// Outputs returns {name: {"type": ..., "value": ...}}, without the value of secrets.
func (p *Plan) Outputs(with Runtime) (map[string]any, error) {
	s := p.scope
	s.runtime, s.grown = with, 0
	out := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(p.template.outputs)) {
		shown, err := s.output(p.template.outputs[name])
		if err != nil {
			return nil, OutputError{name, err}
		}
		if shown != nil {
			out[name] = shown
		}
	}
	return out, nil
}

// output evaluates an output. It returns nil if the condition is false, or the value not yet known.
func (s *scope) output(o output) (map[string]any, error) {
	if o.condition != nil {
		holds, err := s.value(o.condition)
		if err != nil || holds == false {
			return nil, err
		}
	}
	v, err := s.value(o.value)
	if err != nil {
		return nil, err
	}
	if text, ok := v.(string); ok && s.runtime == (later{}) {
		if _, waits := bracketed(text); waits {
			return nil, nil
		}
	}
	if !fits(o.kind, v) {
		return nil, problemf("Template output JToken type is not valid. Expected '%s'. Actual '%s'. "+
			"Please see https://aka.ms/arm-syntax-outputs for usage details", o.kind, kind(v))
	}
	if secure(o.kind) {
		return map[string]any{"type": o.kind}, nil
	}
	return map[string]any{"type": o.kind, "value": v}, nil
}
