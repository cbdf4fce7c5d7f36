package kube

import (
	"slices"
	"strings"
)

// Unite returns the certificates of a new CA followed by those of the former one, so that both are
// accepted while a cluster replaces its CA.
func Unite(next, former string) string {
	first := strings.Join(certificates(next), "")
	return first + Without(former, first)
}

// Without returns the certificates of a bundle that another one does not have.
func Without(bundle, other string) string {
	known := certificates(other)
	return strings.Join(slices.DeleteFunc(certificates(bundle), func(block string) bool {
		return slices.Contains(known, block)
	}), "")
}

// SharesCA reports whether two bundles have a certificate in common.
func SharesCA(a, b string) bool { return Without(a, b) != strings.Join(certificates(a), "") }

// certificates returns the PEM blocks of a bundle.
func certificates(bundle string) []string {
	blocks := strings.SplitAfter(strings.TrimSpace(bundle)+"\n", "-----END CERTIFICATE-----\n")
	return blocks[:len(blocks)-1] // the last one has no end
}
