package change

import (
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
)

// The CAs that a machine has joined with are trusted for the provider's own listener, and for nothing
// else.
func TestProviderCA(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	root := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	bundle, err := config.WithJoining([]byte(`{}`), config.Joining{ProviderCA: ca})
	if err == nil {
		err = os.MkdirAll(filepath.Join(root, saved.StateDir), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(root, saved.BundleFile), bundle, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	machine := &host.Host{Root: root, Log: log}
	a := &Agent{Env: inspect.Env{Reader: machine, Root: root, Log: log}, Machine: machine}
	for endpoint, trusts := range map[string]bool{s.URL: true, config.ResourceManager: false} {
		c := config.Config{ContinuousMonitoring: true}
		c.Agent.Monitoring.Endpoint = endpoint
		resp, err := ProviderClient(a, c).Get(s.URL)
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) != trusts {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}
