package config

import (
	"encoding/json"
	"fmt"
)

// Credentials are the secrets that a configuration may hold for a join. They are kept apart from
// the generations of a node, so that they can be replaced or removed without changing one.
type Credentials struct {
	BootstrapToken Secret `json:"bootstrapToken,omitempty"`
	ClientSecret   Secret `json:"clientSecret,omitempty"`
	// AdminKubeconfig is no part of a configuration: Azure gives it, where node.adminKubeconfig asks
	// for it.
	AdminKubeconfig Secret `json:"adminKubeconfig,omitempty"`
}

// Format shows the credentials as redacted JSON (see BootstrapToken.Format).
func (c Credentials) Format(f fmt.State, _ rune) { writeRedacted(f, c) }

// Reveal is the JSON of the credentials with the secrets in clear, for a file that only root reads.
// json.Unmarshal gives the same Credentials back.
func (c Credentials) Reveal() ([]byte, error) {
	// A type without methods of its own, whose fields are plain strings.
	return json.Marshal(struct {
		BootstrapToken string `json:"bootstrapToken,omitempty"`
		ClientSecret   string `json:"clientSecret,omitempty"`
		AdminConfig    string `json:"adminKubeconfig,omitempty"`
	}{c.BootstrapToken.Reveal(), c.ClientSecret.Reveal(), c.AdminKubeconfig.Reveal()})
}

// Credentials are those of the configuration.
func (c Config) Credentials() Credentials {
	var found Credentials
	if t := c.Azure.BootstrapToken; t != nil {
		found.BootstrapToken = t.Token
	}
	if sp := c.Azure.ServicePrincipal; sp != nil {
		found.ClientSecret = sp.ClientSecret
	}
	return found
}

// WithCredentials is the configuration with the given credentials where it has a section for them;
// an empty one removes the credential. The original is not changed.
func (c Config) WithCredentials(given Credentials) Config {
	if c.Azure.BootstrapToken != nil {
		c.Azure.BootstrapToken = &BootstrapToken{Token: given.BootstrapToken}
	}
	if c.Azure.ServicePrincipal != nil {
		sp := *c.Azure.ServicePrincipal
		sp.ClientSecret = given.ClientSecret
		c.Azure.ServicePrincipal = &sp
	}
	return c
}

// WithoutSecrets is the configuration without its credentials. The sections that held them are
// still there, so that it says how the node authenticates, but no longer with what. URLs of proxies
// keep their passwords: they are part of the node.
func (c Config) WithoutSecrets() Config { return c.WithCredentials(Credentials{}) }
