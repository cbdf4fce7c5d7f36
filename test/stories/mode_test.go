package stories

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
)

// The machine's own identity, as of an Azure VM or an Arc machine.
const (
	vmClientID = "cccccccc-0000-0000-0000-000000000001"
	vmObjectID = "cccccccc-0000-0000-0000-0000000000f1"
)

// mode is a way in which a node authenticates.
type mode struct {
	name string
	// azure sets the section azure of the configuration; nil for a bootstrap token.
	azure func(azure map[string]any)
	// another sets the same with another secret or identity, for the change.
	another func(azure map[string]any)
}

// modes returns all modes; certificate is the file of an application's certificate.
func modes(certificate string) []mode {
	principal := func(secret, credential string) func(map[string]any) {
		return func(azure map[string]any) {
			azure["servicePrincipal"].(map[string]any)["clientSecret"] = secret
			azure["kubeletCredential"] = credential
		}
	}
	managed := func(credential, client string) func(map[string]any) {
		return func(azure map[string]any) {
			delete(azure, "servicePrincipal")
			azure["managedIdentity"] = map[string]any{}
			if client != "" {
				azure["managedIdentity"] = map[string]any{"clientId": client}
			}
			azure["kubeletCredential"] = credential
		}
	}
	arc := func(secret, credential string) func(map[string]any) {
		return func(azure map[string]any) {
			principal(secret, credential)(azure)
			azure["arc"] = map[string]any{"machineName": "edge-1", "resourceGroup": "rg",
				"location": "lab", "autoRoleAssignment": true}
		}
	}
	file := func(azure map[string]any) {
		azure["servicePrincipal"] = map[string]any{"clientId": clientID, "certificateFile": certificate}
	}
	return []mode{
		{"bootstrap token", nil, nil},
		{"secret and token", principal(canary, "token"), principal(newSecret, "token")},
		{"secret and certificate", principal(canary, "certificate"), principal(newSecret, "certificate")},
		{"certificate file and token", file, principal(newSecret, "token")},
		{"managed identity and token", managed("token", ""), managed("token", vmClientID)},
		{"managed identity and certificate",
			managed("certificate", ""), managed("certificate", vmClientID)},
		{"Arc and token", arc(canary, "token"), arc(newSecret, "token")},
		{"Arc and certificate", arc(canary, "certificate"), arc(newSecret, "certificate")},
		{"secret then managed identity", principal(canary, "token"), managed("token", "")},
	}
}

// modeConfig returns the configuration of a mode.
func (w *world) modeConfig(azure func(map[string]any), more ...func(map[string]any)) config.Config {
	w.t.Helper()
	if azure != nil {
		more = append([]func(map[string]any){w.azure(azure)}, more...)
	}
	c := w.configuration(more...)
	c.Agent.ReadyTimeout = "1m"
	return c
}

// machine is the Arc agent of a story's machine, and its metadata service.
type machine struct {
	azuresim.ConnectedMachine
	vm azuresim.MachineIdentity
	// off reports whether Azure is switched off.
	off func() bool
	// root is set on a machine that gets the Arc agent as a package from repository.
	root       string
	repository func(argv []string) ([]byte, error)
	ran        []string
}

// withMachine gives a world with Azure a metadata service, whose identity may join, and the Arc
// agent. The tests of one process share the metadata service's address: they cannot be parallel.
func withMachine(t *testing.T, w *world, sim *azuresim.Sim, off func() bool) *machine {
	t.Helper()
	m := &machine{
		ConnectedMachine: azuresim.ConnectedMachine{Endpoint: w.cluster.issuer, Dir: t.TempDir()},
		off:              off,
	}
	m.vm = m.identity(t, sim, w.cluster.issuer)
	metadata := httptest.NewServer(m)
	t.Cleanup(metadata.Close)
	t.Setenv("IDENTITY_ENDPOINT", metadata.URL+"/metadata/identity/oauth2/token")
	t.Setenv("IDENTITY_HEADER", "of the story")
	w.systemd.Generate("himdsd.service")
	for _, id := range []string{objectID, vmObjectID} {
		for _, role := range []string{config.RoleClusterUser, config.RoleRBACClusterAdmin} {
			sim.Assign(azuresim.Assignment{Scope: clusterID, RoleID: config.Roles()[role], PrincipalID: id})
		}
	}
	sim.Assign(azuresim.Assignment{Scope: "/subscriptions/" + subscription,
		RoleID: "8e3af657-a8ff-443c-a75c-2fe8c4bcb635", PrincipalID: objectID}) // Owner
	return m
}

// identityKey is the key of every managed identity, since it takes long to create.
var identityKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// identity creates a managed identity in Azure.
func (m *machine) identity(
	t *testing.T, sim *azuresim.Sim, authority string,
) azuresim.MachineIdentity {
	t.Helper()
	key := identityKey()
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	sim.AddApplication(azuresim.Application{ClientID: vmClientID, ObjectID: vmObjectID,
		PublicKey: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))})
	private := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return azuresim.MachineIdentity{Authority: authority, TenantID: azuresim.DefaultTenant,
		ClientID: vmClientID, Key: string(pem.EncodeToMemory(private))}
}

// ServeHTTP serves the metadata service. Azure's library reads a VM's only at a fixed address, so
// this acts as App Service's, which has the same requests and answers.
func (m *machine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m.off() {
		panic(http.ErrAbortHandler)
	}
	r.Header.Set("Metadata", "true")
	vm := azuresim.VMMetadata{Identities: []azuresim.MachineIdentity{m.vm}}
	if connected, err := m.Identity(); err == nil {
		vm.Identities = []azuresim.MachineIdentity{connected}
	}
	vm.ServeHTTP(w, r)
}

// programs runs azcmagent.
func (m *machine) programs(ctx context.Context, argv []string) ([]byte, error) {
	if m.root != "" {
		if done, out, err := m.packages(argv); done {
			return out, err
		}
	}
	switch verb := strings.Join(argv[:min(3, len(argv))], " "); verb {
	case "azcmagent show --json":
		c, _ := m.Show()
		return json.Marshal(struct {
			azuresim.Connection
			Status       string `json:"status"`
			AgentVersion string `json:"agentVersion"`
		}{c, m.Status(ctx), "1.65.0"})
	case "dpkg-query --show --showformat=${db:Status-Status} ${Version}":
		return []byte("installed 1.65.0"), nil
	case "azcmagent config get":
		value, err := m.Setting(argv[3])
		return []byte(value + "\n"), err
	case "azcmagent disconnect --force-local-only":
		return nil, m.Disconnect(ctx, "", true)
	case "azcmagent connect --config":
		text, err := os.ReadFile(argv[3])
		var c map[string]string
		if err = errors.Join(err, json.Unmarshal(text, &c)); err != nil {
			return nil, err
		}
		return nil, m.Connect(ctx, azuresim.Connection{
			SubscriptionID: c["subscription-id"], ResourceGroup: c["resource-group"],
			TenantID: c["tenant-id"], Location: c["location"], ResourceName: c["resource-name"],
			AccessToken: c["access-token"],
		})
	default:
		return nil, errors.New("no such command: " + verb)
	}
}

var _ host.Programs = (*machine)(nil).programs
