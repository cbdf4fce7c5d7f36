package front

import (
	"context"
	"strings"
)

// Assignment lets a principal do actions at a scope and below.
type Assignment struct {
	// PrincipalID is the object id of a user or service principal; groups are not looked into.
	PrincipalID string `json:"principalId"`
	// Scope is a resource id, or / for everything.
	Scope string `json:"scope"`
	// Actions are those that are allowed; * stands for anything, as in
	// Microsoft.ContainerService/managedClusters/flexNodeConfig/*.
	Actions []string `json:"actions"`
}

// Assignments is an Authorizer with a fixed list.
type Assignments []Assignment

// Allowed implements Authorizer.
func (a Assignments) Allowed(_ context.Context, c Caller, action, scope string) (bool, error) {
	for _, one := range a {
		if c.ObjectID != "" && strings.EqualFold(one.PrincipalID, c.ObjectID) &&
			within(scope, one.Scope) && allows(one.Actions, action) {
			return true, nil
		}
	}
	return false, nil
}

// within tells whether a scope is another or lies below it.
func within(scope, other string) bool {
	scope = strings.ToLower(strings.TrimRight(scope, "/"))
	other = strings.ToLower(strings.TrimRight(other, "/"))
	return scope == other || strings.HasPrefix(scope, other+"/")
}

func allows(patterns []string, action string) bool {
	for _, p := range patterns {
		if wildcard(strings.ToLower(p), strings.ToLower(action)) {
			return true
		}
	}
	return false
}

// wildcard matches a pattern in which * stands for anything.
func wildcard(pattern, s string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	if !strings.HasPrefix(s, head) {
		return false
	}
	s = s[len(head):]
	for i := 0; i <= len(s); i++ {
		if wildcard(rest, s[i:]) {
			return true
		}
	}
	return false
}
