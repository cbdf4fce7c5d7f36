// Package component builds the upstream programs that the lab runs and serves - etcd, Kubernetes,
// CoreDNS, containerd, runc, the CNI plugins, node-problem-detector - from Go modules, once, into a
// cache. It does not package or start them: lab/mirror packages, lab starts. flexlab and the
// end-to-end tests use it.
package component

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Component is a set of programs with one version that are built together.
type Component struct {
	Name string
	// Version is the release, without a leading "v".
	Version string
	// Sources are the files of the module to build, by path, including go.mod.
	Sources map[string][]byte
	// Builds run in order.
	Builds []Build
	// Extras are files in the release other than programs.
	Extras []Extra
}

// String returns the name and version for messages and file names.
func (c Component) String() string { return c.Name + "-" + c.Version }

// Build is one run of go build.
type Build struct {
	Tags    []string
	LDFlags []string
	// CGO builds with the C compiler, still statically.
	CGO bool
	// Tests builds the packages' tests, with go test -c.
	Tests bool `json:",omitempty"`
	// NoInlining is a pattern of the packages that are compiled without inlining.
	NoInlining string `json:",omitempty"`
	Programs   []Program
}

// Program is one executable.
type Program struct {
	// Name is the file name in the component's directory.
	Name string
	// Package is the import path of its main package, or a path below the sources such as
	// "./pause".
	Package string
	// Version holds the arguments to print its version; empty if it cannot.
	Version []string
	// Prints must be in that output.
	Prints string
}

// Extra is a file copied from a module.
type Extra struct {
	Name   string
	Module string
	Path   string
}

// key returns a hash of everything that the result depends on.
func (c Component) key(toolchain string) (string, error) {
	text, err := json.Marshal(struct {
		Component Component
		Toolchain string
	}{c, toolchain})
	if err != nil {
		return "", fmt.Errorf("internal error: cannot encode the recipe of %s: %w", c, err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6]), nil
}

// HostPackages returns the Debian packages that Builder needs on the host, apart from Go.
func HostPackages() []string { return []string{"gcc", "libc6-dev", "libseccomp-dev", "pkg-config"} }
