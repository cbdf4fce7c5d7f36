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

// ProxyURL names the one azcmagent setting supported: the proxy through which the agent connects to
// Azure. A machine has it whether connected or not.
const ProxyURL = "proxy.url"

func (m ConnectedMachine) settingsFile() string {
	return filepath.Join(filepath.Dir(m.file()), "settings.json")
}

// Setting returns the value of a setting, "" if it is not set: `azcmagent config get`.
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

// Set changes a setting, or clears it with "": `azcmagent config set` and `clear`.
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

// client returns a client that uses the configured proxy.
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
	transport.DisableKeepAlives = true // the client makes one request
	return &http.Client{Transport: transport}, nil
}

// Status returns the agent's status as `azcmagent show` reports it: Connected, or Disconnected if
// the machine is not registered, or Azure does not respond or no longer accepts its identity. The
// real agent also reports Expired, after 45 days.
func (m ConnectedMachine) Status(ctx context.Context) string {
	const connected, disconnected = "Connected", "Disconnected"
	identity, err := m.Identity()
	if err != nil {
		return disconnected
	}
	client, err := m.client()
	if err != nil {
		return disconnected
	}
	status, _, err := identity.token(ctx, client, AKSServer)
	if err != nil || status != http.StatusOK && status != http.StatusTooManyRequests {
		return disconnected
	}
	return connected
}
