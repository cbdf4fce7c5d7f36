package state

// Cordon reports whether the Node object is marked unschedulable (spec.unschedulable).
type Cordon struct {
	On bool `json:"on"`
}

func (r Cordon) Key() Key { return "node:cordon" }

func (r Cordon) describe(Change) string { return either(r.On, "cordon", "uncordon") + " the Node" }

func (r Cordon) show() string { return either(r.On, "cordoned", "schedulable") }
