// Package components holds, as data, the Go modules from which the lab builds the upstream software
// it runs. NAME.mod and NAME.sum are the go.mod and go.sum of one module each; the tool lines of
// the former name the programs. They have other names in the repository because a directory with a
// go.mod of its own cannot be embedded. internal/lab/component builds them.
package components

import (
	"embed"
	"fmt"
)

//go:embed *.mod *.sum
var modules embed.FS

// Module gives the go.mod and go.sum of the module with this name, e.g. "runc-1.4.3".
func Module(name string) (mod, sum []byte, err error) {
	if mod, err = modules.ReadFile(name + ".mod"); err != nil {
		return nil, nil, fmt.Errorf("cannot read the module of a component: %w", err)
	}
	if sum, err = modules.ReadFile(name + ".sum"); err != nil {
		return nil, nil, fmt.Errorf("cannot read the module of a component: %w", err)
	}
	return mod, sum, nil
}
