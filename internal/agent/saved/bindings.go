package saved

import (
	"context"
	"encoding/json"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/node"
)

// Bindings are those that the node was last proved with, and the cluster's identity.
type Bindings struct {
	node.Bindings
	// ClusterUID is the uid of the Service default/kubernetes: it stays when address and CA change.
	ClusterUID string `json:"clusterUID,omitempty"`
	// FormerCA is the part of CA that was current before the last rotation. The next one drops it.
	FormerCA string `json:"formerCA,omitempty"`
	// Answered is the generation in whose manner the provider has answered last, if not the
	// applied.
	Answered string `json:"answered,omitempty"`
}

// SaveBindings writes the bindings.
func (s *Store) SaveBindings(ctx context.Context) error {
	return s.Save(ctx, BindingsFile, s.Bindings)
}

// CurrentCA returns the CA without the former one.
func (b Bindings) CurrentCA() string { return kube.Without(b.CA, b.FormerCA) }

// NextFormerCA returns the former CA once another is proved; "" if only the order is another.
func (b Bindings) NextFormerCA(proved string) string {
	switch {
	case proved == b.CA:
		return b.FormerCA
	case kube.Without(proved, b.CA) == "":
		return ""
	}
	return b.CurrentCA()
}

// Secrets are the credentials of generations, by id, in one file apart from everything else.
type Secrets map[string]config.Credentials

// ReadSecrets reads the credentials alone.
func (s *State) ReadSecrets() error {
	_, err := s.Load(SecretsFile, &s.Secrets)
	return err
}

// SaveSecrets writes the credentials of all generations, or removes the file without any.
func (s *Store) SaveSecrets(ctx context.Context) error {
	list := make(map[string]json.RawMessage)
	for id, c := range s.Secrets {
		if c == (config.Credentials{}) {
			continue
		}
		clear, err := c.Reveal()
		if err != nil {
			return err
		}
		list[id] = clear
	}
	if len(list) == 0 {
		return s.Remove(ctx, SecretsFile)
	}
	return s.Save(ctx, SecretsFile, list)
}
