package state

import "strings"

// Enablement is the state of a unit file as systemd calls it (systemctl(1), is-enabled).
type Enablement string

// The enablements of wanted or restored units; an observed unit may have others, such as static.
const Enabled, Disabled, Masked, NoUnit Enablement = "enabled", "disabled", "masked", "not-found"

// Unit is a systemd unit: whether it starts at boot and runs now. Its unit file is a File.
type Unit struct {
	Name    string     `json:"name"`
	Enabled Enablement `json:"enabled"`
	Active  bool       `json:"active"`
}

func (r Unit) Key() Key { return UnitKey(r.Name) }

// between reports whether a unit is in a mix of two states, as a killed run leaves it.
func (r Unit) between(a, b Resource) bool {
	one, ok1 := a.(Unit)
	two, ok2 := b.(Unit)
	return ok1 && ok2 &&
		(r.Enabled == one.Enabled || r.Enabled == two.Enabled) &&
		(r.Active == one.Active || r.Active == two.Active)
}

func (r Unit) describe(c Change) string {
	from, _ := c.From.(Unit)
	var verbs []string
	if from.Enabled != r.Enabled {
		verb := either(r.Enabled == Masked, "mask", "disable")
		verbs = append(verbs, either(r.Enabled == Enabled, "enable", verb))
	}
	if c.Restart || r.Active != from.Active {
		verbs = append(verbs, either(c.Restart, "restart", either(r.Active, "start", "stop")))
	}
	return strings.TrimSpace(strings.Join(verbs, " and ") + " " + r.Name)
}

func (r Unit) show() string {
	return string(r.Enabled) + " and " + either(r.Active, "running", "stopped")
}
