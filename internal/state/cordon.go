package state

// Cordon tells whether the Node object is marked unschedulable (spec.unschedulable).
type Cordon struct {
	On bool `json:"on"`
}

// Key implements Resource.
func (r Cordon) Key() Key { return "node:cordon" }

func (r Cordon) kind() string { return "cordon" }

func (r Cordon) equal(other Resource) bool { return r == other }

func (r Cordon) claims() bool { return false }

func (r Cordon) absence() Resource { return Cordon{} }

func (r Cordon) undoForeign(Resource) treatment { return leaveAsIs }

func (r Cordon) describe(Change) string {
	if r.On {
		return "cordon the Node"
	}
	return "uncordon the Node"
}

func (r Cordon) describeUndo(c Change) string { return r.describe(c) }

func (r Cordon) show() string {
	if r.On {
		return "cordoned"
	}
	return "schedulable"
}
