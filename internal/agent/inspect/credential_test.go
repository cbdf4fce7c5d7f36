package inspect

import (
	"encoding/pem"
	"maps"
	"slices"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/azuresim/azuresimtest"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// fileMachine is a machine on which each file has the same content.
type fileMachine struct {
	Reader
	content []byte
}

func (m fileMachine) ReadFile(string) ([]byte, error) { return m.content, nil }

// A certificate that kubelet does not use, and so does not renew, has no expiry.
func TestExpiries(t *testing.T) {
	certificate, _ := azuresimtest.Certificate(t)
	m := fileMachine{content: pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})}
	h := &Node{Env: &Env{Reader: m}, Saved: saved.New(m)}
	var requests, tokens config.Config
	requests.Node.Kubelet.ServerTLSBootstrap = true
	requests.Azure.BootstrapToken = &config.BootstrapToken{}
	tokens.Azure.ManagedIdentity = &config.ManagedIdentity{}
	tokens.Azure.KubeletCredential = config.CredentialToken
	for _, tt := range []struct {
		c    config.Config
		want []string
	}{
		{requests, []string{"kubelet-client", "kubelet-server"}}, {tokens, nil},
	} {
		if got := slices.Sorted(maps.Keys(expiries(h, tt.c))); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %q, want %q", tt.c.Azure, got, tt.want)
		}
	}
}
