package state

import "strings"

// PackageState is the state of a package of the distribution on a machine.
type PackageState string

// The states.
const (
	// Absent packages have left nothing.
	PackageAbsent PackageState = "absent"
	// Removed ones have left their configuration.
	PackageRemoved PackageState = "removed"
	// Unfinished ones are those whose installation or removal was interrupted.
	PackageUnfinished PackageState = "unfinished"
	PackageInstalled  PackageState = "installed"
)

// Package is a package of the distribution, in whatever version: others bring it up to date.
type Package struct {
	Name  string       `json:"name"`
	State PackageState `json:"state"`
	// Version is the observed one; "" where a program of that name came without a package.
	Version string `json:"version,omitempty"`
}

// PackageKey is the key of a package.
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
