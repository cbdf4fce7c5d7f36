package state

import "fmt"

// Label is a label of the Node object.
type Label struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
	// Set tells that the Node has the label; Value is "" when it has not.
	Set bool `json:"set"`
}

// Key implements Resource.
func (r Label) Key() Key { return Key("node:label:" + r.Name) }

func (r Label) kind() string { return "label" }

func (r Label) equal(other Resource) bool { return r == other }

func (r Label) claims() bool { return false }

func (r Label) absence() Resource { return Label{Name: r.Name} }

func (r Label) undoForeign(Resource) treatment { return leaveAsIs }

func (r Label) describe(Change) string {
	if r.Set {
		return fmt.Sprintf("set label %s to %q", r.Name, r.Value)
	}
	return "remove label " + r.Name
}

func (r Label) describeUndo(c Change) string { return r.describe(c) }

func (r Label) show() string {
	if r.Set {
		return fmt.Sprintf("%q", r.Value)
	}
	return "not set"
}
