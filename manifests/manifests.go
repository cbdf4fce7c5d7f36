// Package manifests holds what the operator of a cluster applies to it, by `flexnode-rp cluster
// prepare` or with kubectl.
package manifests

import "embed"

// Files are the manifests.
//
//go:embed *.yaml
var Files embed.FS

// Text returns a manifest.
func Text(name string) string {
	data, err := Files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(data)
}
