package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
)

const redacted = "[redacted]"

// Secret prints, logs and encodes as "[redacted]", or "" if empty. Reveal returns the value.
type Secret string

// Reveal returns the secret itself, for the one place that uses it.
func (s Secret) Reveal() string { return string(s) }

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// Format hides the secret from every verb of fmt, wrong ones included.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue hides the secret from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the secret from encoders such as JSON's. Config.Reveal writes it to files.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Format shows the section as redacted JSON. Without it, a verb that does not fit a pointer makes
// fmt print the struct without calling the methods of its Secrets.
func (t BootstrapToken) Format(f fmt.State, _ rune) { writeRedacted(f, t) }

// Format shows the section as redacted JSON, for the same reason.
func (p ServicePrincipal) Format(f fmt.State, _ rune) { writeRedacted(f, p) }

func writeRedacted(f fmt.State, v any) {
	text, _ := json.Marshal(v) // strings and Secrets can be encoded
	_, _ = f.Write(text)
}

// Reveal returns the configuration as deterministic JSON with clear secrets, for root's files.
func (c Config) Reveal() []byte {
	doc := c.Redacted()
	for path, secret := range c.secrets() {
		put(doc, path, secret.Reveal())
	}
	text, _ := json.MarshalIndent(doc, "", "  ") // a decoded document can be encoded
	return text
}

func put(doc map[string]any, path, s string) {
	parent, name := split(path)
	objectAt(doc, parent, false)[name] = s
}

// Secrets lists every secret in the configuration and its secret parts, for redaction.
func (c Config) Secrets() []string {
	var list []string
	for path, secret := range c.hidden() {
		text := secret.Reveal()
		list = append(list, text)
		part := ""
		if path == "azure.bootstrapToken.token" {
			_, part, _ = strings.Cut(text, ".")
		} else if u, err := url.Parse(text); err == nil {
			part, _ = u.User.Password()
		}
		if part != "" {
			list = append(list, part)
		}
	}
	return list
}

// SecretPaths returns the paths of the settings that hold secrets, sorted.
func (c Config) SecretPaths() []string { return slices.Sorted(maps.Keys(c.hidden())) }

// hidden returns the secrets by path. A proxy URL without a user is not secret.
func (c Config) hidden() map[string]Secret {
	found := c.secrets()
	maps.DeleteFunc(found, func(path string, s Secret) bool {
		u, err := url.Parse(s.Reveal())
		return Below(path, "proxy") && err == nil && u.Host != "" && u.User == nil
	})
	return found
}

// Credentials holds the secrets of a configuration for a join. They are stored apart from the
// generations of a node, so that they can be replaced or removed without changing one.
type Credentials struct {
	BootstrapToken Secret `json:"bootstrapToken,omitempty"`
	ClientSecret   Secret `json:"clientSecret,omitempty"`
	// AdminKubeconfig is not configured: Azure returns it if node.adminKubeconfig is set.
	AdminKubeconfig Secret `json:"adminKubeconfig,omitempty"`
}

// Format shows the credentials as redacted JSON (see BootstrapToken.Format).
func (c Credentials) Format(f fmt.State, _ rune) { writeRedacted(f, c) }

// Reveal returns the credentials as JSON in clear, for root's files.
func (c Credentials) Reveal() []byte {
	// A type without methods of its own, whose fields are plain strings.
	text, _ := json.Marshal(struct {
		BootstrapToken string `json:"bootstrapToken,omitempty"`
		ClientSecret   string `json:"clientSecret,omitempty"`
		AdminConfig    string `json:"adminKubeconfig,omitempty"`
	}{c.BootstrapToken.Reveal(), c.ClientSecret.Reveal(), c.AdminKubeconfig.Reveal()})
	return text
}

// Credentials returns the credentials in the configuration.
func (c Config) Credentials() Credentials {
	token := cmp.Or(c.Azure.BootstrapToken, &BootstrapToken{})
	sp := cmp.Or(c.Azure.ServicePrincipal, &ServicePrincipal{})
	return Credentials{BootstrapToken: token.Token, ClientSecret: sp.ClientSecret}
}

// WithCredentials returns the configuration with the given credentials in its sections for them; an
// empty one removes the credential. The original is not changed.
func (c Config) WithCredentials(given Credentials) Config {
	if c.Azure.BootstrapToken != nil {
		c.Azure.BootstrapToken = &BootstrapToken{Token: given.BootstrapToken}
	}
	if c.Azure.ServicePrincipal != nil {
		c.Azure.ServicePrincipal = new(*c.Azure.ServicePrincipal)
		c.Azure.ServicePrincipal.ClientSecret = given.ClientSecret
	}
	return c
}

// WithoutSecrets returns the configuration without its credentials, but with their sections. URLs
// of proxies keep their passwords: they are part of the node.
func (c Config) WithoutSecrets() Config { return c.WithCredentials(Credentials{}) }
