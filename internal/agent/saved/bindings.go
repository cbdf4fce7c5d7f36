package saved

import (
	"context"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/node"
)

// Bindings are what the node was last proved with, and the cluster's identity.
type Bindings struct {
	node.Bindings
	// ClusterUID is the uid of the Service default/kubernetes: the cluster stays the same one when
	// its address and CA change.
	ClusterUID string `json:"clusterUID,omitempty"`
	// FormerCA is the part of CA that was current before the last rotation. The next one drops it.
	FormerCA string `json:"formerCA,omitempty"`
	// Answered is the generation in whose manner the provider has answered last, as long as it has
	// not answered in that of the applied one. Its secret is kept.
	Answered string `json:"answered,omitempty"`
}

// ReadBindings reads the bindings alone.
func (s *State) ReadBindings() error {
	_, err := s.Load(BindingsFile, &s.Bindings)
	return err
}

// SaveBindings writes the bindings.
func (s *Store) SaveBindings(ctx context.Context) error {
	return s.Save(ctx, BindingsFile, s.Bindings)
}

// CurrentCA returns the CA without the former one.
func (b Bindings) CurrentCA() string { return Without(b.CA, b.FormerCA) }

// NextFormerCA returns what is the former CA once another one is proved. One that has nothing new
// only has another order: then nothing is former.
func (b Bindings) NextFormerCA(proved string) string {
	switch {
	case proved == b.CA:
		return b.FormerCA
	case Without(proved, b.CA) == "":
		return ""
	}
	return b.CurrentCA()
}

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
func SharesCA(a, b string) bool {
	known := certificates(b)
	return slices.ContainsFunc(certificates(a), func(block string) bool {
		return slices.Contains(known, block)
	})
}

// certificates takes a bundle apart into PEM blocks.
func certificates(bundle string) []string {
	const end = "-----END CERTIFICATE-----\n"
	var blocks []string
	for rest := strings.TrimSpace(bundle) + "\n"; ; {
		i := strings.Index(rest, end)
		if i < 0 {
			return blocks
		}
		blocks = append(blocks, rest[:i+len(end)])
		rest = rest[i+len(end):]
	}
}
