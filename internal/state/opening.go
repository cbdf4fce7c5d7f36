package state

import "strings"

// Opening is one rule of ours, for a node's traffic, in a firewall of the machine's owner.
type Opening struct {
	// Firewall is where the rule is, and Rule what it lets pass, in the words of package host.
	Firewall string `json:"firewall"`
	Rule     string `json:"rule"`
	Open     bool   `json:"open"`
	// Off tells that the firewall stops nothing now: there is nothing to open or close.
	Off bool `json:"off,omitempty"`
}

// Opening is the firewall and the rule of the name of an opening's key.
func (k Key) Opening() (firewall, rule string) {
	firewall, rule, _ = strings.Cut(k.Name(), ": ")
	return firewall, rule
}

// IsOpening reports whether the key is that of a rule in a firewall of the owner.
func (k Key) IsOpening() bool { return strings.HasPrefix(string(k), "opening:") }

// IsFirewall reports whether the key is that of rules of ours: an opening, or a table.
func (k Key) IsFirewall() bool { return k.IsOpening() || strings.HasPrefix(string(k), "table:") }

func (r Opening) Key() Key { return Key("opening:" + r.Firewall + ": " + r.Rule) }

// equal: a firewall that stops nothing is as good as an open one, and as one without our rule.
func (r Opening) equal(other Resource) bool {
	o, ok := other.(Opening)
	return ok && (r.Off || o.Off || r.Open == o.Open)
}

func (r Opening) describe(Change) string {
	return either(r.Open, "open", "close") + " firewall " + r.Firewall + ": " + r.Rule
}

func (r Opening) show() string {
	return either(r.Off, "not needed", either(r.Open, "open", "closed"))
}
