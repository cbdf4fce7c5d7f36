// Command az makes the extension of the az CLI, a wheel without dependencies, of the Python files
// beside it. `make az-extension` calls it; Python is not needed.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

func main() {
	described := flag.String("version", "dev", "what `git describe` says")
	from := flag.String("from", "az", "directory with the extension's module")
	out := flag.String("out", "../bin", "directory to write the wheel into")
	flag.Parse()
	file, err := write(*from, *out, *described)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	fmt.Println(file)
}

// write makes the wheel and returns its path: az reads name and version out of that.
func write(from, out, described string) (string, error) {
	version := versionOf(described)
	data, err := wheel(os.DirFS(from), version)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return "", fmt.Errorf("cannot make %s: %w", out, err)
	}
	file := filepath.Join(out, distribution+"-"+version+"-py3-none-any.whl")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return "", fmt.Errorf("cannot write the wheel: %w", err)
	}
	return file, nil
}

var (
	release = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)(?:-(\d+)-g[0-9a-f]+)?(?:-dirty)?$`)
	commit  = regexp.MustCompile(`^[0-9a-f]{7,40}`)
)

// versionOf is a version of Python (PEP 440) for one of git: v1.2.3-4-gabc is 1.2.3.post4.
func versionOf(described string) string {
	if found := release.FindStringSubmatch(described); found != nil {
		if found[2] != "" {
			return found[1] + ".post" + found[2]
		}
		return found[1]
	}
	if hash := commit.FindString(described); hash != "" {
		return "0.0.0+" + hash
	}
	return "0.0.0"
}
