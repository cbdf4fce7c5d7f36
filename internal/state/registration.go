package state

// Registration is the Node object of this machine. PodCIDRs and Labels are what it is created with
// when somebody has deleted it; they are not compared.
type Registration struct {
	Node     string            `json:"node"`
	Exists   bool              `json:"exists"`
	PodCIDRs []string          `json:"podCIDRs,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
}

// Key implements Resource.
func (r Registration) Key() Key { return Key("node:registration:" + r.Node) }

func (r Registration) kind() string { return "registration" }

func (r Registration) equal(other Resource) bool {
	o, ok := other.(Registration)
	return ok && r.Exists == o.Exists
}

func (r Registration) claims() bool { return false }

func (r Registration) absence() Resource { return Registration{Node: r.Node} }

func (r Registration) undoForeign(Resource) treatment { return leaveAsIs }

func (r Registration) describe(Change) string {
	if r.Exists {
		return "register Node " + r.Node
	}
	return "delete Node " + r.Node
}

func (r Registration) describeUndo(c Change) string { return r.describe(c) }

func (r Registration) show() string {
	if r.Exists {
		return "registered"
	}
	return "not registered"
}
