package saved

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/kube"
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

// SaveBindings writes the bindings.
func (s *Store) SaveBindings(ctx context.Context) error {
	return s.Save(ctx, BindingsFile, s.Bindings)
}

// CurrentCA returns the CA without the former one.
func (b Bindings) CurrentCA() string { return kube.Without(b.CA, b.FormerCA) }

// NextFormerCA returns what is the former CA once another one is proved. One that has nothing new
// only has another order: then nothing is former.
func (b Bindings) NextFormerCA(proved string) string {
	switch {
	case proved == b.CA:
		return b.FormerCA
	case kube.Without(proved, b.CA) == "":
		return ""
	}
	return b.CurrentCA()
}

// Secrets are the credentials of generations, by id. They are in one file, apart from everything
// else.
type Secrets map[string]config.Credentials

// revealed is how credentials are in their file.
type revealed struct {
	BootstrapToken string `json:"bootstrapToken,omitempty"`
	ClientSecret   string `json:"clientSecret,omitempty"`
	// AdminKubeconfig is a whole file.
	AdminKubeconfig string `json:"adminKubeconfig,omitempty"`
}

// ReadSecrets reads the credentials alone.
func (s *State) ReadSecrets() error {
	var list map[string]revealed
	if _, err := s.Load(SecretsFile, &list); err != nil {
		return err
	}
	for id, r := range list {
		s.Secrets[id] = config.Credentials{
			BootstrapToken: config.Secret(r.BootstrapToken), ClientSecret: config.Secret(r.ClientSecret),
			AdminKubeconfig: config.Secret(r.AdminKubeconfig),
		}
	}
	return nil
}

// SaveSecrets writes the credentials of all generations, or removes the file without any.
func (s *Store) SaveSecrets(ctx context.Context) error {
	list := make(map[string]revealed)
	for id, c := range s.Secrets {
		if c != (config.Credentials{}) {
			list[id] = revealed{
				c.BootstrapToken.Reveal(), c.ClientSecret.Reveal(), c.AdminKubeconfig.Reveal(),
			}
		}
	}
	if len(list) == 0 {
		return s.Remove(ctx, SecretsFile)
	}
	return s.Save(ctx, SecretsFile, list)
}
