package config

import (
	"encoding/json"
	"net/url"
	"strings"
)

// Reveal is the configuration as JSON with its secrets in clear, for files that only root reads.
// Parse gives the same Config back. The same Config always gives the same bytes.
func (c Config) Reveal() ([]byte, error) {
	doc, err := c.redacted()
	if err != nil {
		return nil, err
	}
	for _, l := range leaves(&c) {
		if secret, ok := l.value.Interface().(Secret); ok && secret != "" {
			put(doc, l.pattern, secret.Reveal())
		}
	}
	return json.MarshalIndent(doc, "", "  ")
}

// put sets the string at a plain path of a document that has it.
func put(doc map[string]any, path, s string) {
	for {
		name, rest, more := strings.Cut(path, ".")
		if !more {
			doc[name] = s
			return
		}
		doc, path = doc[name].(map[string]any), rest
	}
}

// Secrets lists every secret in the configuration, to redact it in logs. The URL of a proxy is
// secret when there is a user in it.
func (c Config) Secrets() []string {
	var list []string
	if sp := c.Azure.ServicePrincipal; sp != nil && sp.ClientSecret != "" {
		list = append(list, sp.ClientSecret.Reveal())
	}
	if t := c.Azure.BootstrapToken; t != nil && t.Token != "" {
		list = append(list, t.Token.Reveal())
		if _, secret, ok := strings.Cut(t.Token.Reveal(), "."); ok && secret != "" {
			list = append(list, secret)
		}
	}
	for _, proxy := range []Secret{c.Proxy.HTTP, c.Proxy.HTTPS} {
		u, err := url.Parse(proxy.Reveal())
		if err != nil {
			list = append(list, proxy.Reveal())
			continue
		}
		if u.User == nil {
			continue
		}
		list = append(list, proxy.Reveal())
		if password, ok := u.User.Password(); ok && password != "" {
			list = append(list, password)
		}
	}
	return list
}
