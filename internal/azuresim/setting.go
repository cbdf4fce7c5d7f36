package azuresim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
)

// ProxyURL is the setting of azcmagent that this stand-in knows: the proxy through which the agent
// reaches Azure. A machine has it whether it is connected or not.
const ProxyURL = "proxy.url"

func (m ConnectedMachine) settingsFile() string {
	return filepath.Join(filepath.Dir(m.file()), "settings.json")
}

// Setting is the value of a setting, "" when it is not set: `azcmagent config get`.
func (m ConnectedMachine) Setting(name string) (string, error) {
	if name != ProxyURL {
		return "", fmt.Errorf("invalid configuration property: %s", name)
	}
	data, err := os.ReadFile(m.settingsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var settings map[string]string
	if err == nil {
		err = json.Unmarshal(data, &settings)
	}
	return settings[name], err
}

// Set changes a setting, and clears it with "": `azcmagent config set` and `clear`.
func (m ConnectedMachine) Set(name, value string) error {
	if _, err := m.Setting(name); err != nil {
		return err
	}
	text, err := json.Marshal(map[string]string{name: value})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(m.file()), 0o700); err != nil {
		return err
	}
	return os.WriteFile(m.settingsFile(), text, 0o600)
}

// client reaches Azure through the proxy that is set.
func (m ConnectedMachine) client() (*http.Client, error) {
	direct := client(m.Client)
	setting, err := m.Setting(ProxyURL)
	if err != nil || setting == "" {
		return direct, err
	}
	proxy, err := url.Parse(setting)
	if err != nil {
		return nil, fmt.Errorf("cannot use %s: %w", ProxyURL, err)
	}
	transport := http.DefaultTransport.(*http.Transport)
	if own, ok := direct.Transport.(*http.Transport); ok {
		transport = own
	}
	transport = transport.Clone()
	transport.Proxy = http.ProxyURL(proxy)
	transport.DisableKeepAlives = true // it is used for one request
	return &http.Client{Transport: transport}, nil
}

// Status returns the agent's status as `azcmagent show` reports it: Connected, Disconnected when
// the machine is not registered or Azure does not answer, or Expired when Azure no longer accepts
// the machine's identity. The real agent waits 45 days before it says Expired.
func (m ConnectedMachine) Status(ctx context.Context) string {
	const connected, disconnected, expired = "Connected", "Disconnected", "Expired"
	identity, err := m.Identity()
	if err != nil {
		return disconnected
	}
	client, err := m.client()
	if err != nil {
		return disconnected
	}
	status, _, err := identity.token(ctx, client, AKSServer)
	switch {
	case err != nil || status >= http.StatusInternalServerError:
		return disconnected
	case status != http.StatusOK && status != http.StatusTooManyRequests:
		return expired
	}
	return connected
}
