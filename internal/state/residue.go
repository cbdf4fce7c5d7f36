package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// ResidueKind is a kind of leftover.
type ResidueKind string

// The leftovers of the programs that we install.
const (
	Interfaces ResidueKind = "interface" // network interfaces; Match is the exact name
	Chains     ResidueKind = "chain"     // of iptables, with jumps; Match is a prefix of the name
	Tables     ResidueKind = "table"     // of nftables; Match is the exact name, in any family
	Cgroups    ResidueKind = "cgroup"    // at the root of the hierarchy; Match is the slice's name
	Processes  ResidueKind = "process"   // their executable is below the directory Match
	Mounts     ResidueKind = "mount"     // Match is a prefix of the mount point
	Files      ResidueKind = "file"      // regular files; Match is the exact path
	Trees      ResidueKind = "tree"      // directories with contents; Match is the exact path
	Settings   ResidueKind = "setting"   // kernel parameters that are not 0; Match is the name
)

// Residue describes what our programs leave outside our files. The ledger holds only its state
// before us. A plan does not observe a wanted one, which might require running a program.
type Residue struct {
	Kind  ResidueKind `json:"kind"`
	Match string      `json:"match"`
	Found []string    `json:"found,omitempty"`
}

func (r Residue) Key() Key { return Key("residue:" + string(r.Kind) + ":" + r.Match) }

func (r Residue) equal(other Resource) bool {
	o, ok := other.(Residue)
	return ok && slices.Equal(r.Found, o.Found)
}

var residues = map[ResidueKind]string{
	Interfaces: "network interface %s", Chains: "iptables chains %s*", Tables: "nftables tables %s",
	Cgroups: "control group %s", Processes: "processes of %s", Mounts: "mounts %s*",
	Files: "file %s", Trees: "directory %s", Settings: "setting of %s",
}

func (r Residue) describe(c Change) string {
	return either(c.Undo, "remove ", "remember ") + fmt.Sprintf(residues[r.Kind], r.Match)
}

func (r Residue) show() string { return cmp.Or(strings.Join(r.Found, ", "), "none") }
