package front

import (
	"context"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// Assignment lets a principal do actions at a scope and below.
type Assignment struct {
	// PrincipalID is the object id of a user or service principal; groups are not expanded.
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
			arm.Within(scope, one.Scope) && arm.Allows(one.Actions, action) {
			return true, nil
		}
	}
	return false, nil
}
