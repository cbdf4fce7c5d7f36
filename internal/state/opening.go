package state

import "strings"

// Firewall is a firewall of the machine's owner that stops packets that no rule accepts.
type Firewall struct {
	Name string `json:"name"`           // in the words of package host
	Hook string `json:"hook,omitempty"` // input, forward or output; "" is all of them
}

// Opening is our rule for a node's traffic in a firewall of the machine's owner.
type Opening struct {
	// Firewall is the firewall, and Rule the accepted traffic, in the words of package host.
	Firewall string `json:"firewall"`
	Rule     string `json:"rule"`
	Open     bool   `json:"open"`
	Off      bool   `json:"off,omitempty"` // it stops nothing now: nothing is to open or close
}

// Opening returns the firewall and the rule in the key of an opening.
func (k Key) Opening() (firewall, rule string) {
	firewall, rule, _ = strings.Cut(k.Name(), ": ")
	return firewall, rule
}

// IsOpening reports whether the key is that of a rule in the owner's firewall.
func (k Key) IsOpening() bool { return strings.HasPrefix(string(k), "opening:") }

// IsVital reports whether a node is unsafe without the thing, as without our firewall rules, is cut
// off, as without router advertisements, or is not able to start, as with swap or parameters that
// kubelet checks: it is repaired with the drift policy report, too.
func (k Key) IsVital() bool {
	return k.IsOpening() || k == Swap{}.Key() || strings.HasPrefix(string(k), "table:") ||
		strings.HasSuffix(string(k), ".accept_ra") ||
		strings.HasPrefix(string(k), "sysctl:vm.") || strings.HasPrefix(string(k), "sysctl:kernel.")
}

func (r Opening) Key() Key { return Key("opening:" + r.Firewall + ": " + r.Rule) }

// equal treats a firewall that stops nothing as equal to one with our rule and to one without it.
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
