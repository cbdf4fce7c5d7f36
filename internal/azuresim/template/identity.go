package template

import (
	"strings"

	"github.com/google/uuid"
)

// typed splits arguments at the resource type.
func typed(a []any) (before []string, kind string, names []string, err error) {
	all, err := args[string](a, 0)
	for at, v := range all {
		if strings.Contains(v, "/") {
			return all[:at], v, all[at+1:], err
		}
	}
	if err == nil {
		err = problemf("Unable to evaluate template language function 'resourceId': there is no fully " +
			"qualified resource type among the arguments")
	}
	return nil, "", nil, err
}

// below returns the id of a resource below a scope.
func below(scope, kind string, names []string) (string, error) {
	types := strings.Split(kind, "/")
	if len(names) != len(types)-1 {
		return "", problemf("Unable to evaluate template language function 'resourceId': the type '%s' "+
			"requires '%d' resource name argument(s). Please see "+
			"https://aka.ms/arm-functions-resource#resourceid for usage details", kind, len(types)-1)
	}
	id := scope + "/providers/" + types[0]
	for at, name := range names {
		id += "/" + types[at+1] + "/" + name
	}
	return id, nil
}

// resourceID implements resourceId([subscription], [resource group], type, name...).
func resourceID(s *scope, a []any) (any, error) {
	before, kind, names, err := typed(a)
	if err != nil {
		return nil, err
	}
	subscription, group := s.place.subscription(), s.place.group()
	switch len(before) {
	case 0:
	case 1:
		group = before[0]
	case 2:
		subscription, group = before[0], before[1]
	default:
		return nil, problemf("Unable to evaluate template language function 'resourceId': %d arguments "+
			"are before the type", len(before))
	}
	return below("/subscriptions/"+subscription+"/resourceGroups/"+group, kind, names)
}

// subscriptionResourceID implements subscriptionResourceId([subscription], type, name...).
func subscriptionResourceID(s *scope, a []any) (any, error) {
	before, kind, names, err := typed(a)
	if err != nil {
		return nil, err
	}
	subscription := s.place.subscription()
	if len(before) > 0 {
		subscription = before[0]
		if _, err := uuid.Parse(subscription); err != nil || len(before) > 1 {
			return nil, problemf("Unable to evaluate template language function "+
				"'subscriptionResourceId': '%s' is no subscription", subscription)
		}
	}
	return below("/subscriptions/"+subscription, kind, names)
}

// extensionResourceID implements extensionResourceId(id, type, name...).
func extensionResourceID(_ *scope, a []any) (any, error) {
	all, err := args[string](a, 0)
	if err != nil {
		return nil, err
	}
	return below(strings.TrimSuffix(all[0], "/"), all[1], all[2:])
}

// reference implements reference(id or name, [version], ['Full']).
func reference(s *scope, a []any) (any, error) {
	all, err := args[string](a, 0)
	if err != nil {
		return nil, err
	}
	if s.runtime == nil {
		return nil, unexpectedHere("reference")
	}
	version, full := "", false
	if len(all) > 1 {
		version = all[1]
	}
	if len(all) > 2 {
		full = strings.EqualFold(all[2], "Full")
		if !full {
			return nil, problemf("Unable to evaluate template language function 'reference': '%s' is "+
				"not 'Full'", all[2])
		}
	}
	return s.runtime.Reference(all[0], version, full)
}

// listed implements list*(id, version, [body]).
func listed(s *scope, action string, a []any) (any, error) {
	if s.runtime == nil {
		return nil, unexpectedHere(action)
	}
	id, err := arg[string](a, 0)
	if err != nil {
		return nil, err
	}
	version, err := arg[string](a, 1)
	if err != nil {
		return nil, err
	}
	var body any
	if len(a) > 2 {
		body = a[2]
	}
	return s.runtime.List(action, id, version, body)
}

func unexpectedHere(name string) error {
	return problemf("The template function '%s' is not expected at this location. Please see "+
		"https://aka.ms/arm-functions for usage details", name)
}
