package flexnode

import (
	"cmp"
	"slices"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// The states that nodes are counted by. A node is in several of them.
const (
	StateJoined       = "joined"
	StateNotJoined    = "notJoined"
	StateReady        = "ready"
	StateNotReady     = "notReady"
	StateUpToDate     = "upToDate"
	StateOutdated     = "outdated"
	StateFailed       = "failed"
	StateHeldBack     = "heldBack"
	StateReporting    = "reporting"
	StateNotReporting = "notReporting"
	StateDrifted      = "drifted"
)

// States lists all of them.
var States = []string{
	StateJoined, StateNotJoined, StateReady, StateNotReady, StateUpToDate, StateOutdated,
	StateFailed, StateHeldBack, StateReporting, StateNotReporting, StateDrifted,
}

// Class holds the properties by which nodes of an outline are counted.
type Class struct {
	// State is the provisioningState.
	State  string
	States []string
	// Conditions holds the node's conditions as in a list, without times and messages.
	Conditions []api.Condition
	Versions   api.Versions   // desired
	Components api.Components // running, as the agent reported
}

// classify returns the class of an outline.
func (c *Classes) classify(o Outline) *Class {
	e := o.evidence(c.reachable)
	e.Provider = c.provider
	shown := Shown(e.Node, nil, nil, StatusOf(e)).Properties
	class := &Class{
		State: shown.ProvisioningState, Versions: o.Wanted.Value().Versions,
		Components: o.Said.Value().Components,
	}
	for _, one := range shown.Status.Conditions {
		class.Conditions = append(class.Conditions, api.Condition{
			Type: one.Type, Status: one.Status, Reason: one.Reason,
		})
	}
	is := func(kind, status string) bool { return class.find(kind).Status == status }
	for _, test := range []struct {
		state string
		so    bool
	}{
		{StateJoined, is(Joined, "True")},
		{StateNotJoined, !is(Joined, "True")},
		{StateReady, is(Ready, "True")},
		{StateNotReady, e.Status.Ready != nil && !is(Ready, "True")},
		{StateUpToDate, is(UpToDate, "True")},
		{StateOutdated, is(UpToDate, "False")},
		{StateFailed, class.State == api.Failed || class.find(UpToDate).Reason == "Failed"},
		{StateHeldBack, o.Order.Assigned != o.Order.Revision},
		{StateReporting, is(Reporting, "True")},
		{StateNotReporting, is(Reporting, "False")},
		{StateDrifted, o.Said.Value().Drifted},
	} {
		if test.so {
			class.States = append(class.States, test.state)
		}
	}
	return class
}

// find returns a condition; the zero one if the class has none of that type.
func (c *Class) find(kind string) api.Condition {
	return *cmp.Or(find(c.Conditions, kind), &api.Condition{})
}

// find returns the condition of a type; nil for none.
func find(all []api.Condition, kind string) *api.Condition {
	if i := slices.IndexFunc(all, func(c api.Condition) bool { return c.Type == kind }); i >= 0 {
		return &all[i]
	}
	return nil
}

// Classes caches the classes of a cluster's nodes.
type Classes struct {
	reachable bool
	provider  string
	known     map[Outline]*Class
}

// NewClasses returns an empty cache for a cluster, reachable or not, and the provider's version.
func NewClasses(reachable bool, provider string) *Classes {
	return &Classes{reachable, provider, map[Outline]*Class{}}
}

// Of returns the class of an outline.
func (c *Classes) Of(o Outline) *Class {
	class := c.known[o]
	if class == nil {
		class = c.classify(o)
		c.known[o] = class
	}
	return class
}
