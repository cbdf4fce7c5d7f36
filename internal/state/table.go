package state

import "fmt"

// Table is an nftables table of ours, loaded from a File. Only the number of the kernel's rules is
// compared: a change of the file owes a restart of the unit that loads it.
type Table struct {
	Name  string `json:"name"`           // the family and the name, such as "inet aks-flex-node"
	File  string `json:"file,omitempty"` // the path of the rules, in the syntax of nft(8)
	Rules int    `json:"rules"`          // the number of rules in the table; 0 without a table
}

func (r Table) Key() Key { return Key("table:" + r.Name) }

func (r Table) equal(other Resource) bool {
	o, ok := other.(Table)
	return ok && r.Rules == o.Rules
}

func (r Table) describe(Change) string {
	return either(r.Rules == 0, "remove", "load") + " nftables table " + r.Name
}

func (r Table) show() string {
	return either(r.Rules == 0, "not loaded", fmt.Sprintf("loaded with %d rules", r.Rules))
}
