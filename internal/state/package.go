package state

import "strings"

// PackageState is the state of a distribution package on a machine.
type PackageState string

// The states.
const (
	PackageAbsent     PackageState = "absent"     // nothing is left behind
	PackageRemoved    PackageState = "removed"    // its configuration is left
	PackageUnfinished PackageState = "unfinished" // an installation or removal was interrupted
	PackageInstalled  PackageState = "installed"
)

// Package is a distribution package in any version: others update it.
type Package struct {
	Name    string       `json:"name"`
	State   PackageState `json:"state"`
	Version string       `json:"version,omitempty"` // observed; "" for a program without a package
}

// PackageKey returns the key of a package.
func PackageKey(name string) Key { return Key("package:" + name) }

func (r Package) Key() Key { return PackageKey(r.Name) }

func (r Package) equal(other Resource) bool {
	o, ok := other.(Package)
	return ok && r.State == o.State
}

func (r Package) describe(Change) string {
	verb := either(r.State == PackageRemoved, "remove", "purge")
	return either(r.State == PackageInstalled, "install", verb) + " package " + r.Name
}

func (r Package) show() string { return strings.TrimSpace(string(r.State) + " " + r.Version) }
