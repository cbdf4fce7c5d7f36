// Package components holds the Go modules from which the lab builds upstream software. NAME.mod and
// NAME.sum are the go.mod and go.sum of a module; the former's tool lines name the programs. A
// program assembled here has its main.go in NAME.main. They have these names because a directory
// with its own go.mod cannot be embedded. lab/component builds them.
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

// Module returns the files of a module, such as "runc-1.4.3", by their paths in it: go.mod, go.sum
// and, if there is one, PROGRAM/main.go of the program.
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
