package azuresim

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
)

// ConnectedMachine does on a machine what azcmagent does, against a simulated Azure. It registers
// the machine through Resource Manager, as the real agent does.
type ConnectedMachine struct {
	// Endpoint is the origin of the simulated Azure.
	Endpoint string
	// Dir holds the machine's identity; "" is /var/opt/azcmagent.
	Dir    string
	Client *http.Client
}

// Connection holds the flags of azcmagent connect.
type Connection struct {
	SubscriptionID string            `json:"subscriptionId"`
	ResourceGroup  string            `json:"resourceGroup"`
	TenantID       string            `json:"tenantId"`
	Location       string            `json:"location"`
	ResourceName   string            `json:"resourceName"`
	Tags           map[string]string `json:"tags,omitempty"`
	AccessToken    string            `json:"-"`
}

// connected is the state file of a connected machine.
type connected struct {
	Connection
	ResourceID string          `json:"resourceId"`
	Identity   MachineIdentity `json:"identity"`
}

func (m ConnectedMachine) file() string {
	return filepath.Join(first(m.Dir, "/var/opt/azcmagent"), "machine.json")
}

func (m ConnectedMachine) load() (connected, error) {
	var c connected
	data, err := os.ReadFile(m.file())
	if errors.Is(err, fs.ErrNotExist) {
		return c, errors.New("the machine is not connected")
	}
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	return c, err
}

// Identity returns the machine's managed identity, or an error if the machine is not connected.
func (m ConnectedMachine) Identity() (MachineIdentity, error) {
	c, err := m.load()
	return c.Identity, err
}

// Show returns the machine's connection and reports whether it is connected.
func (m ConnectedMachine) Show() (Connection, bool) {
	c, err := m.load()
	return c.Connection, err == nil
}

// Connect generates a key, registers the machine with its public part and stores the identity that
// Azure returns.
func (m ConnectedMachine) Connect(ctx context.Context, c Connection) error {
	if _, ok := m.Show(); ok {
		return errors.New("AZCM0101: the machine is connected already; disconnect it first")
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("cannot make a key: %w", err)
	}
	made := connected{Connection: c,
		ResourceID: fmt.Sprintf(
			"/subscriptions/%s/resourceGroups/%s/providers/Microsoft.HybridCompute/machines/%s",
			c.SubscriptionID, c.ResourceGroup, c.ResourceName)}
	var answer struct {
		Identity struct {
			ClientID string `json:"clientId"`
			TenantID string `json:"tenantId"`
		} `json:"identity"`
	}
	body := map[string]any{"location": c.Location, "tags": c.Tags,
		"identity": map[string]string{"type": "SystemAssigned"},
		"properties": map[string]any{"clientPublicKey": base64.StdEncoding.EncodeToString(
			x509.MarshalPKCS1PublicKey(&key.PublicKey)), "osType": "linux"}}
	if err := m.call(ctx, http.MethodPut, made.ResourceID, c.AccessToken, body,
		&answer); err != nil {
		return fmt.Errorf("AZCM0042: cannot create the Azure resource: %w", err)
	}
	made.Identity = MachineIdentity{Authority: m.Endpoint, TenantID: answer.Identity.TenantID,
		ClientID: answer.Identity.ClientID,
		Key: string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
			Bytes: x509.MarshalPKCS1PrivateKey(key)}))}
	text, err := json.MarshalIndent(made, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(m.file()), 0o700); err != nil {
		return err
	}
	return os.WriteFile(m.file(), text, 0o600)
}

// Disconnect removes the stored identity and, unless localOnly, deletes the machine's resource
// first.
func (m ConnectedMachine) Disconnect(ctx context.Context, accessToken string,
	localOnly bool) error {
	c, err := m.load()
	if err != nil {
		return err
	}
	if !localOnly {
		if err := m.call(ctx, http.MethodDelete, c.ResourceID, accessToken, nil, nil); err != nil {
			return err
		}
	}
	return os.Remove(m.file())
}

func (m ConnectedMachine) call(ctx context.Context, method, id, token string, body,
	answer any) error {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, m.Endpoint+id+"?api-version=2024-07-10",
		reader)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	client, err := m.client()
	if err != nil {
		return err
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
