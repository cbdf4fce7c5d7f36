package lab

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
)

// The addresses, ids and roles of the lab's Azure.
const (
	AzureURL        = "https://" + HostIP + ":8445"
	AzureControlURL = "http://127.0.0.1:8446"
	Tenant          = azuresim.DefaultTenant
	Subscription    = "00000000-0000-0000-0000-000000000000"
	groupID         = "/subscriptions/" + Subscription + "/resourceGroups/flexlab"
	ClusterID       = groupID + "/providers/Microsoft.ContainerService/managedClusters/flexlab"
	// RegistryID is the registry with the lab's images, at AzureURL, for identities with AcrPull.
	RegistryID = groupID + "/providers/Microsoft.ContainerRegistry/registries/flexlab"
	// User owns the subscription and can sign in by device code.
	User = "operator@flexlab.example"

	roleReader           = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
	roleOwner            = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"
	roleClusterUser      = "4abbcc35-e782-43d8-92c5-2d3f1bd2253f"
	roleRBACClusterAdmin = "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b"
)

// Principal is a service principal of the lab's Azure.
type Principal struct {
	ClientID string `json:"clientId"`
	ObjectID string `json:"objectId"`
	Secret   string `json:"secret"`
}

// Azure holds the identities of the lab's Azure.
type Azure struct {
	// Operator owns the subscription, Unprivileged has no roles, Node may join the cluster.
	Operator, Unprivileged, Node Principal
	// Provider is the resource provider's identity, which reads role assignments.
	Provider Principal
	// VM is the managed identity shared by all machines that have one.
	VM azuresim.MachineIdentity
}

// Azure returns the identities. The first call creates them.
func (l *Lab) Azure() (Azure, error) {
	var a Azure
	data, err := os.ReadFile(l.path("azure.json"))
	if err == nil {
		return a, json.Unmarshal(data, &a)
	}
	principal := func(n int) Principal {
		return Principal{ClientID: fmt.Sprintf("aaaaaaaa-0000-0000-0000-%012d", n),
			ObjectID: fmt.Sprintf("bbbbbbbb-0000-0000-0000-%012d", n), Secret: random(32)}
	}
	a.Operator, a.Unprivileged = principal(1), principal(2)
	a.Node, a.Provider = principal(3), principal(5)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return a, fmt.Errorf("cannot make a key: %w", err)
	}
	a.VM = azuresim.MachineIdentity{Authority: AzureURL, TenantID: Tenant,
		ClientID: "aaaaaaaa-0000-0000-0000-000000000004",
		Key: string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
			Bytes: x509.MarshalPKCS1PrivateKey(key)}))}
	if data, err = json.Marshal(a); err != nil {
		return a, fmt.Errorf("internal error: %w", err)
	}
	return a, os.WriteFile(l.path("azure.json"), data, 0o600)
}

// VMObjectID is the object id of the managed identity VM.
const VMObjectID = "bbbbbbbb-0000-0000-0000-000000000004"

// world returns the contents of the lab's Azure.
func (l *Lab) world() (azuresim.World, error) {
	a, err := l.Azure()
	if err != nil {
		return azuresim.World{}, err
	}
	cluster, err := l.cluster()
	if err != nil {
		return azuresim.World{}, err
	}
	public, err := publicKey(a.VM.Key)
	if err != nil {
		return azuresim.World{}, err
	}
	app := func(name string, p Principal) azuresim.Application {
		return azuresim.Application{ClientID: p.ClientID, ObjectID: p.ObjectID, Name: name,
			Secrets: []azuresim.Secret{{Value: p.Secret}}}
	}
	const user = "cccccccc-0000-0000-0000-000000000001"
	give := func(principal, role, scope string) azuresim.Assignment {
		return azuresim.Assignment{Scope: scope, RoleID: role, PrincipalID: principal}
	}
	return azuresim.World{
		TenantID: Tenant, Subscriptions: []azuresim.Subscription{{ID: Subscription, Name: "flexlab"}},
		ResourceGroups: []string{groupID}, Registry: RegistryID,
		Applications: []azuresim.Application{
			app("operator", a.Operator), app("unprivileged", a.Unprivileged), app("node", a.Node),
			app("flexnode-rp", a.Provider),
			{ClientID: a.VM.ClientID, ObjectID: VMObjectID, Name: "vm", PublicKey: public,
				ResourceID: groupID + "/providers/Microsoft.Compute/virtualMachines/vm"},
		},
		Users:    []azuresim.User{{ObjectID: user, Name: User}},
		Clusters: []azuresim.Cluster{cluster},
		Assignments: []azuresim.Assignment{
			give(a.Operator.ObjectID, roleOwner, "/subscriptions/"+Subscription),
			give(user, roleOwner, "/subscriptions/"+Subscription),
			give(a.Node.ObjectID, roleClusterUser, ClusterID),
			give(a.Node.ObjectID, roleRBACClusterAdmin, ClusterID),
			give(a.Provider.ObjectID, roleReader, "/subscriptions/"+Subscription),
			give(VMObjectID, roleClusterUser, ClusterID),
			give(VMObjectID, roleRBACClusterAdmin, ClusterID),
		},
	}, nil
}

// cluster returns the lab's cluster as a resource in Azure.
func (l *Lab) cluster() (azuresim.Cluster, error) {
	ca, err := l.ClusterCA()
	if err != nil {
		return azuresim.Cluster{}, fmt.Errorf("cannot read the PKI: %w", err)
	}
	admin, err := os.ReadFile(l.Kubeconfig())
	if err != nil {
		return azuresim.Cluster{}, fmt.Errorf("cannot read the PKI: %w", err)
	}
	return azuresim.Cluster{
		ID: ClusterID, Location: "lab", Version: Newest.Kubernetes, Server: APIServer, CA: string(ca),
		AdminKubeconfig: string(admin), DNSServiceIP: DNSService, Entra: true, AzureRBAC: true,
	}, nil
}

func publicKey(key string) (string, error) {
	block, _ := pem.Decode([]byte(key))
	private, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("internal error: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return "", fmt.Errorf("internal error: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), nil
}

// azuresim returns the path of the program, beside flexlab.
func (l *Lab) azuresim() string { return filepath.Join(filepath.Dir(l.Self), "azuresim") }

// startAzure starts the simulated Azure and configures the API server to accept its tokens and to
// use its authorization webhook.
func (l *Lab) startAzure(ctx context.Context) error {
	world, err := l.world()
	if err != nil {
		return err
	}
	text, err := json.Marshal(world)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	ca, err := l.CA()
	if err != nil {
		return err
	}
	for name, content := range map[string]string{
		"world.json":          string(text),
		"authentication.yaml": authentication(string(ca)),
		"authorization.yaml":  authorization(l.path("pki", "ca.crt")),
	} {
		if err := os.WriteFile(l.path(name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("cannot write the lab's Azure: %w", err)
		}
	}
	if err := l.background("azuresim", l.azuresim(),
		append(l.providerFlags(), "serve", "--listen="+strings.TrimPrefix(AzureURL, "https://"),
			"--control="+strings.TrimPrefix(AzureControlURL, "http://"),
			"--tls-cert="+l.path("pki", "server.crt"), "--tls-key="+l.path("pki", "server.key"),
			"--images="+RegistryURL, "--world="+l.path("world.json"))...); err != nil {
		return err
	}
	if err := until(ctx, time.Minute, "azuresim (see "+l.path("logs", "azuresim.log")+")",
		func() error {
			_, err := l.AzureControl(ctx, http.MethodGet, "/knobs", nil)
			return err
		}); err != nil {
		return err
	}
	// Restart an API server that was started without Azure.
	if p, up := l.running("kube-apiserver"); up &&
		!p.hasArgument("--authentication-config="+l.path("authentication.yaml")) {
		l.Say("restarting the API server, with Azure")
		return l.StopAPIServer()
	}
	return nil
}

// AzureControl sends a request to the control API of the simulated Azure and returns the response
// body.
func (l *Lab) AzureControl(ctx context.Context, method, path string, body any) (string, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return "", fmt.Errorf("internal error: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, method, AzureControlURL+path,
		strings.NewReader(string(text)))
	if err != nil {
		return "", err
	}
	response, err := (&http.Client{Timeout: 10 * time.Second}).Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("azuresim: %s: %s", response.Status, answer)
	}
	return string(answer), err
}

// authentication returns an AuthenticationConfiguration (apiserver.config.k8s.io/v1) with which the
// API server accepts Entra's tokens. As in AKS, the user name is the object id.
func authentication(ca string) string {
	ca = strings.ReplaceAll(strings.TrimSpace(ca), "\n", "\n      ")
	return fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: %s/%s/
    audiences: [%s]
    certificateAuthority: |
      %s
  claimMappings:
    username: {claim: oid, prefix: ""}
    groups: {claim: groups, prefix: ""}
`, AzureURL, Tenant, azuresim.AKSServer, ca)
}

// authorization returns the kubeconfig of the authorization webhook, which the API server calls if
// the Node authorizer and RBAC have no opinion.
func authorization(ca string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: azure, cluster: {server: "%s/kubernetes/authorize%s", certificate-authority: %s}}]
users: [{name: apiserver, user: {}}]
contexts: [{name: azure, context: {cluster: azure, user: apiserver}}]
current-context: azure
`, AzureURL, ClusterID, ca)
}

// azureFlags returns the API server's authorization flags. Webhook decisions are cached for seconds
// only, so that changes take effect soon.
func (l *Lab) azureFlags() []string {
	if !l.HasAzure() {
		return []string{"--authorization-mode=Node,RBAC"}
	}
	return []string{
		"--authorization-mode=Node,RBAC,Webhook",
		"--authentication-config=" + l.path("authentication.yaml"),
		"--authorization-webhook-config-file=" + l.path("authorization.yaml"),
		"--authorization-webhook-version=v1",
		"--authorization-webhook-cache-authorized-ttl=5s",
		"--authorization-webhook-cache-unauthorized-ttl=1s",
	}
}

// HasAzure reports whether the lab has a simulated Azure.
func (l *Lab) HasAzure() bool {
	_, err := os.Stat(l.path("world.json"))
	return err == nil
}

// AddVMIdentity gives a machine the managed identity and an Azure VM's metadata service.
func (l *Lab) AddVMIdentity(ctx context.Context, m Machine) error {
	a, err := l.Azure()
	if err != nil {
		return err
	}
	identities, err := json.Marshal([]azuresim.MachineIdentity{a.VM})
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	program, err := os.ReadFile(l.azuresim())
	if err != nil {
		return fmt.Errorf("cannot read azuresim: %w; run `make build`", err)
	}
	if err := l.Write(m, "/usr/local/lib/azuresim/azuresim", 0o755, program); err != nil {
		return err
	}
	if err := l.Write(m, "/etc/azuresim/identities.json", 0o600, identities); err != nil {
		return err
	}
	const unit = `[Unit]
Description=Simulated metadata service of an Azure VM
After=systemd-networkd.service
[Service]
ExecStartPre=-/usr/sbin/ip address add 169.254.169.254/32 dev lo
ExecStart=/usr/local/lib/azuresim/azuresim imds
Restart=always
[Install]
WantedBy=multi-user.target
`
	if err := l.Write(m, "/etc/systemd/system/imds.service", 0o644, []byte(unit)); err != nil {
		return err
	}
	return l.enable(ctx, m, "imds")
}

func (l *Lab) enable(ctx context.Context, m Machine, units ...string) error {
	if _, err := l.Output(ctx, m, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	_, err := l.Output(ctx, m, append([]string{"systemctl", "enable", "--now"}, units...)...)
	return err
}
