package state

import "fmt"

// Label is a label of the Node object.
type Label struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
	Set   bool   `json:"set"` // the Node has the label; if not, Value is ""
}

func (r Label) Key() Key { return Key("node:label:" + r.Name) }

func (r Label) describe(Change) string {
	return either(r.Set, fmt.Sprintf("set label %s to %q", r.Name, r.Value), "remove label "+r.Name)
}

func (r Label) show() string { return either(r.Set, fmt.Sprintf("%q", r.Value), "not set") }
