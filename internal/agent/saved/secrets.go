package saved

import (
	"context"

	"github.com/Azure/AKSFlexNode/internal/config"
)

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
