package state

import "fmt"

// Sysctl is a kernel parameter's value at run time, by its dotted name; "" while its module is not
// loaded.
type Sysctl struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Key implements Resource.
func (r Sysctl) Key() Key { return Key("sysctl:" + r.Name) }

func (r Sysctl) kind() string { return "sysctl" }

func (r Sysctl) equal(other Resource) bool { return r == other }

func (r Sysctl) claims() bool { return false }

func (r Sysctl) absence() Resource { return nil }

func (r Sysctl) undoForeign(Resource) treatment { return leaveAsIs }

func (r Sysctl) describe(Change) string { return fmt.Sprintf("set %s to %s", r.Name, r.Value) }

func (r Sysctl) describeUndo(Change) string {
	return fmt.Sprintf("restore %s to %s", r.Name, r.Value)
}

func (r Sysctl) show() string { return r.Value }
