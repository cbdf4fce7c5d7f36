// Command az makes the az CLI extension, a wheel without dependencies, from the Python files beside
// it. `make az-extension` runs it; it does not need Python.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
)

func main() {
	described := flag.String("version", "dev", "what `git describe` says")
	out := flag.String("out", "../bin", "directory to write the wheel into")
	flag.Parse()
	version := versionOf(*described)
	data, err := wheel(os.DirFS("az"), version)
	if err != nil {
		log.Fatal(err)
	}
	file := filepath.Join(*out, distribution+"-"+version+"-py3-none-any.whl") // az reads both from it
	if err := errors.Join(os.MkdirAll(*out, 0o755), os.WriteFile(file, data, 0o644)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(file)
}

// release matches the output of git describe: a version with its suffixes, or a commit.
var release = regexp.MustCompile(
	`^v?(\d+\.\d+\.\d+)(?:-dev(\.\d+)|-(\d+)-g[0-9a-f]+)?(?:-dirty)?$|^([0-9a-f]{7,40})`)

// versionOf converts it to a Python version (PEP 440): v1.2.3-4-gabc to 1.2.3.post4, v1.2.3-dev.4
// to 1.2.3.dev4.
func versionOf(described string) string {
	found := release.FindStringSubmatch(described)
	switch {
	case found == nil:
		return "0.0.0"
	case found[4] != "":
		return "0.0.0+" + found[4]
	case found[3] != "":
		return found[1] + ".post" + found[3]
	case found[2] != "":
		return found[1] + ".dev" + found[2][1:]
	}
	return found[1]
}
