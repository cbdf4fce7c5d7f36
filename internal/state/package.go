package state

import "strings"

// PackageState is the state of a distribution package on a machine.
type PackageState string

// The states.
const (
	// Absent packages have left nothing behind.
	PackageAbsent PackageState = "absent"
	// Removed packages have left their configuration.
	PackageRemoved PackageState = "removed"
	// Unfinished packages have an interrupted installation or removal.
	PackageUnfinished PackageState = "unfinished"
	PackageInstalled  PackageState = "installed"
)

// Package is a distribution package in any version: others update it.
type Package struct {
	Name  string       `json:"name"`
	State PackageState `json:"state"`
	// Version is the observed version; "" if a program of that name has no package.
	Version string `json:"version,omitempty"`
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
