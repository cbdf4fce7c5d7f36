// Package components holds, as data, the Go modules from which the lab builds the upstream software
// it runs. NAME.mod and NAME.sum are the go.mod and go.sum of one module each; the tool lines of
// the former name the programs. A program that is put together here has its main.go as NAME.main.
// They have other names in the repository because a directory with a go.mod of its own cannot be
// embedded. lab/component builds them.
package components

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

//go:embed *.mod *.sum *.main
var modules embed.FS

// Path is the prefix of the modules' paths.
const Path = "github.com/Azure/AKSFlexNode/lab/components/"

// Module gives the files of the module with this name, e.g. "runc-1.4.3", by their paths in it:
// go.mod, go.sum and, where there is one, PROGRAM/main.go for the program of that name.
func Module(name, program string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for path, suffix := range map[string]string{
		"go.mod": ".mod", "go.sum": ".sum", program + "/main.go": ".main",
	} {
		text, err := modules.ReadFile(name + suffix)
		if suffix == ".main" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the module of a component: %w", err)
		}
		files[path] = text
	}
	return files, nil
}
