package state

// Registration is the Node object. PodCIDRs and Labels, used to create it again, are not compared.
type Registration struct {
	Node     string            `json:"node"`
	Exists   bool              `json:"exists"`
	PodCIDRs []string          `json:"podCIDRs,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
}

func (r Registration) Key() Key { return Key("node:registration:" + r.Node) }

func (r Registration) equal(other Resource) bool {
	o, ok := other.(Registration)
	return ok && r.Exists == o.Exists
}

func (r Registration) describe(Change) string {
	return either(r.Exists, "register", "delete") + " Node " + r.Node
}

func (r Registration) show() string { return either(r.Exists, "registered", "not registered") }
