package policy

import "cmp"

// Limit is one limit as it is in force, for people and programs.
type Limit struct {
	// Name is its path in the file.
	Name  string `json:"limit"`
	Value string `json:"value"`
	// From is the file, or "default".
	From string `json:"from"`
	// Means says what is limited.
	Means string `json:"means"`
}

// Limits returns all limits in the order of the file.
func (p Policy) Limits() []Limit {
	list := []Limit{limit("deletion", p.Deletion, Follow,
		"when the provider has deleted the node: give the machine back, wait for a person, or never")}
	for _, v := range p.versions() {
		list = append(list, limit(v.key, v.least, "none", "the oldest "+v.path))
	}
	for _, rule := range p.hosts() {
		given := ""
		if rule.allowed != nil {
			given = shownHosts(rule.allowed)
		}
		list = append(list, limit(rule.key, given, "any", rule.means))
	}
	list = append(list, limit("agentUpdates", word(p.AgentUpdates), allowed,
		"updates of the agent by a provider; this release has none"))
	for _, may := range p.permissions() {
		list = append(list, limit(may.key, word(may.given), word(&may.usual), may.means))
	}
	for _, kind := range p.Diagnose.kinds() {
		list = append(list, limit(kind.key, kind.given, allow, kind.means))
	}
	return append(list, limit(keyOfBundles, p.Diagnose.Key, "none",
		"the key that support bundles are encrypted to; none are given without one"))
}

func limit(name, given, usual, means string) Limit {
	from := File
	if given == "" {
		from = "default"
	}
	return Limit{name, cmp.Or(given, usual), from, means}
}

const allowed = "allowed"

// word is the answer of a policy; "" for none.
func word(granted *bool) string {
	switch {
	case granted == nil:
		return ""
	case *granted:
		return allowed
	}
	return "refused"
}
