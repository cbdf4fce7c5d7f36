package stories

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/azuresim/azuresimtest"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

const (
	subscription = "00000000-0000-0000-0000-000000000000"
	groupID      = "/subscriptions/" + subscription + "/resourceGroups/rg"
	clusterID    = groupID + "/providers/Microsoft.ContainerService/managedClusters/c"
	clientID     = "aaaaaaaa-0000-0000-0000-000000000001"
	objectID     = "aaaaaaaa-0000-0000-0000-0000000000f1"
	canary       = "canary-of-the-principal"
)

// tokenRoot, in the environment, makes this program act as the agent of a story's machine when its
// kubelet requests a token.
const tokenRoot = "STORY_TOKEN_ROOT"

func TestMain(m *testing.M) {
	if root := os.Getenv(tokenRoot); root != "" {
		os.Exit(token(root))
	}
	identity.Propagation = 2 * time.Second
	os.Exit(azuresimtest.Main(m))
}

// token runs `aks-flex-node token` on a machine whose root is a directory.
func token(root string) int {
	w := &world{root: root, fuse: fuse{left: -1}, cluster: &cluster{}}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	t, err := inspect.Token(ctx, &w.agent().Env)
	if err == nil {
		err = identity.WriteExec(os.Stdout, t, "")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// azureWorld returns a machine that will join with a service principal.
func azureWorld(t *testing.T) (*world, *azuresim.Sim) {
	t.Helper()
	w := newWorld(t)
	sim := w.simulateAzure(t, canary)
	w.program = w.installProgram(t)
	w.config = w.configuration(w.azure(nil))
	w.config.Agent.ReadyTimeout = "1m"
	return w, sim
}

// simulateAzure simulates the Azure of a machine's cluster, with a principal that may join and the
// given secrets.
func (w *world) simulateAzure(t *testing.T, secrets ...string) *azuresim.Sim {
	t.Helper()
	sim := &azuresim.Sim{}
	app := azuresim.Application{ClientID: clientID, ObjectID: objectID}
	for _, secret := range secrets {
		app.Secrets = append(app.Secrets, azuresim.Secret{Value: secret})
	}
	sim.Load(azuresim.World{
		TenantID: azuresim.DefaultTenant, Subscriptions: []azuresim.Subscription{{ID: subscription}},
		ResourceGroups: []string{groupID},
		Applications:   []azuresim.Application{app},
		Clusters: []azuresim.Cluster{{ID: clusterID, Server: w.cluster.URL,
			CA: string(w.cluster.caPEM), Entra: true, AzureRBAC: true}},
		Assignments: []azuresim.Assignment{
			{Scope: clusterID, RoleID: "4abbcc35-e782-43d8-92c5-2d3f1bd2253f", PrincipalID: objectID},
			{Scope: clusterID, RoleID: "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b", PrincipalID: objectID},
		},
	})
	entra := httptest.NewTLSServer(sim)
	t.Cleanup(entra.Close)
	w.cluster.azure, w.cluster.issuer = sim, entra.URL
	return sim
}

// installProgram puts aks-flex-node at the path where the machine's kubelet runs it.
func (w *world) installProgram(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "aks-flex-node")
	script := fmt.Sprintf("#!/bin/sh\n%s=%s exec %s\n", tokenRoot, w.root, self)
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return program
}

// azure returns the azure section of a machine with an Azure identity, with changes. Without Arc
// kubelet uses the identity's token, unless change sets another credential.
func (w *world) azure(change func(azure map[string]any)) func(map[string]any) {
	return func(c map[string]any) {
		section := map[string]any{
			"tenantId": azuresim.DefaultTenant, "authorityHost": w.cluster.issuer,
			"resourceManagerEndpoint": w.cluster.issuer,
			"servicePrincipal":        map[string]any{"clientId": clientID, "clientSecret": canary},
			"targetCluster":           map[string]any{"resourceId": clusterID, "location": "lab"},
		}
		if change != nil {
			change(section)
		}
		if section["kubeletCredential"] == nil && section["arc"] == nil {
			section["kubeletCredential"] = "token"
		}
		c["azure"] = section
		delete(c["node"].(map[string]any)["kubelet"].(map[string]any), "serverURL")
		delete(c["node"].(map[string]any)["kubelet"].(map[string]any), "caCertData")
	}
}

// The effects of Azure faults in each phase of a join: it succeeds by itself, or one error tells
// the cause and what to do, and the next run finishes.
func TestAzureFaults(t *testing.T) {
	t.Parallel()
	knobs := func(f func(*azuresim.Knobs)) func(*azuresim.Sim) {
		return func(s *azuresim.Sim) { s.Adjust(f) }
	}
	fault := func(service azuresim.Service, f azuresim.Fault) func(*azuresim.Sim) {
		faults := map[azuresim.Service]azuresim.Fault{service: f}
		return knobs(func(k *azuresim.Knobs) { k.Faults = faults })
	}
	revoke := func(s *azuresim.Sim) { s.Revoke(objectID) }
	const before, joining = "before anything is touched", "while kubelet joins"
	tests := []struct {
		phase, name string
		fault       func(*azuresim.Sim)
		want        []string // of the error; none for success
	}{
		{before, "Entra ID is slow", fault(azuresim.Entra,
			azuresim.Fault{Latency: 300 * time.Millisecond}), nil},
		{before, "Entra ID is ill a while", fault(azuresim.Entra,
			azuresim.Fault{Status: 503, Match: "token", Times: 2}), nil},
		{before, "Entra ID is ill", fault(azuresim.Entra, azuresim.Fault{Status: 503, Match: "token"}),
			[]string{"cannot read the cluster", "Entra ID has an internal problem (503",
				"try again later"}},
		{before, "Entra ID throttles a while", fault(azuresim.Entra,
			azuresim.Fault{Status: 429, RetryAfter: 1, Match: "token", Times: 1}), nil},
		{before, "a page for Entra ID", fault(azuresim.Entra, azuresim.Fault{HTML: true}),
			[]string{"is not Azure: it sent a web page"}},
		{before, "Resource Manager is slow", fault(azuresim.ARM,
			azuresim.Fault{Latency: 300 * time.Millisecond}), nil},
		{before, "Resource Manager hangs up a while",
			fault(azuresim.ARM, azuresim.Fault{Outage: true, Times: 2}), nil},
		{before, "Resource Manager is ill a while",
			fault(azuresim.ARM, azuresim.Fault{Status: 500, Times: 2}), nil},
		{before, "Resource Manager is ill", fault(azuresim.ARM, azuresim.Fault{Status: 500}),
			[]string{"Resource Manager has an internal problem (500)", "try again later"}},
		{before, "Resource Manager throttles a while",
			fault(azuresim.ARM, azuresim.Fault{Status: 429, RetryAfter: 1, Times: 1}), nil},
		{before, "a page for Resource Manager", fault(azuresim.ARM, azuresim.Fault{HTML: true}),
			[]string{"is not Azure: it sent a web page", "check the proxy"}},
		{before, "Azure's clock is ahead", knobs(func(k *azuresim.Knobs) { k.Skew = 4 * time.Minute }),
			nil},
		{before, "short tokens", knobs(func(k *azuresim.Knobs) { k.TokenLifetime = 35 * time.Second }),
			nil},
		{before, "no role", revoke, []string{"the identity lacks permission on " + clusterID,
			"az role assignment create"}},
		{joining, "Entra ID is slow", fault(azuresim.Entra,
			azuresim.Fault{Latency: 300 * time.Millisecond}), nil},
		{joining, "Entra ID is ill a while", fault(azuresim.Entra,
			azuresim.Fault{Status: 503, Match: "token", Times: 2}), nil},
		{joining, "Entra ID is ill", fault(azuresim.Entra, azuresim.Fault{Status: 503, Match: "token"}),
			[]string{"cannot make Node edge-1 Ready",
				"cannot get a token for kubelet: Entra ID has an internal problem (503"}},
		// it is no longer asked
		{joining, "Resource Manager is ill", fault(azuresim.ARM, azuresim.Fault{Status: 500}), nil},
		{joining, "short tokens", knobs(func(k *azuresim.Knobs) { k.TokenLifetime = 35 * time.Second }),
			nil},
		{joining, "the role is taken away", revoke,
			[]string{"cannot make Node edge-1 Ready",
				"needs the role \"Azure Kubernetes Service RBAC Cluster Admin\""}},
	}
	for _, tt := range tests {
		t.Run(tt.phase+"/"+tt.name, func(t *testing.T) {
			t.Parallel()
			w, sim := azureWorld(t)
			tree := w.tree()
			if tt.phase == before {
				tt.fault(sim)
			} else {
				w.systemd.OnStart = func(unit, text string) error {
					if unit == "kubelet.service" {
						tt.fault(sim)
					}
					return w.start(unit, text)
				}
			}
			_, err := w.bootstrap()
			if len(tt.want) == 0 && err != nil {
				t.Fatalf("it did not succeed by itself: %v", err)
			}
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v does not say %q", err, want)
				}
			}
			if err != nil && tt.phase == before {
				w.same(tree)
			}
			w.systemd.OnStart = w.start
			sim.Adjust(func(k *azuresim.Knobs) { *k = azuresim.Knobs{} })
			for _, role := range []string{"4abbcc35-e782-43d8-92c5-2d3f1bd2253f",
				"b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b"} {
				sim.Assign(azuresim.Assignment{Scope: clusterID, RoleID: role, PrincipalID: objectID})
			}
			if _, err := w.bootstrap(); err != nil {
				t.Fatalf("the next run: %v", err)
			}
			if err := w.unbootstrap(); err != nil {
				t.Errorf("unbootstrap: %v", err)
			}
			w.same(tree)
			if strings.Contains(w.log.String(), canary) {
				t.Error("the secret is in the log")
			}
		})
	}
}

// The cluster is examined before anything is changed; a configuration with the addresses of the API
// server and DNS causes no request to Azure.
func TestClusters(t *testing.T) {
	tests := []struct {
		name   string
		change func(*azuresim.Cluster)
		config func(*world)
		want   string // of the error; "" for success
		asks   bool   // of Resource Manager
	}{
		{"without local accounts", func(c *azuresim.Cluster) { c.LocalAccountsDisabled = true }, nil, "",
			true},
		{"private", func(c *azuresim.Cluster) { c.Private = true }, nil, "", true},
		{"without Entra ID", func(c *azuresim.Cluster) { c.Entra = false }, nil,
			"does not accept identities of Entra ID; enable them", true},
		{"without Azure RBAC", func(c *azuresim.Cluster) { c.AzureRBAC = false }, nil,
			"Azure's role assignments do not authorise there; enable that", true},
		{"named in the configuration", func(*azuresim.Cluster) {}, func(w *world) {
			w.config.Node.Kubelet.ServerURL, w.config.Node.Kubelet.CACertData = w.cluster.URL,
				base64.StdEncoding.EncodeToString(w.cluster.caPEM)
			w.config.Node.Kubelet.DNSServiceIP = "10.0.0.10"
		}, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, sim := azureWorld(t)
			k := azuresim.Cluster{ID: clusterID, Server: w.cluster.URL, CA: string(w.cluster.caPEM),
				Entra: true, AzureRBAC: true}
			k.AdminKubeconfig = fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: "+
				"{server: %q, certificate-authority-data: %s}}]\ncontexts: [{name: c, context: {cluster: "+
				"c}}]\ncurrent-context: c\n",
				k.Server, base64.StdEncoding.EncodeToString(w.cluster.caPEM))
			tt.change(&k)
			sim.AddCluster(k)
			if tt.config != nil {
				tt.config(w)
			}
			before := w.tree()
			_, err := w.bootstrap()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if err != nil {
				w.same(before)
			}
			if asked := sim.Requests(azuresim.ARM) > 0; asked != tt.asks {
				t.Errorf("Resource Manager was asked: %v, want %v", asked, tt.asks)
			}
		})
	}
}

// A node needs Azure only until it has its certificate.
func TestCertificateOfAnIdentity(t *testing.T) {
	w, sim := azureWorld(t)
	before := w.tree()
	w.config.Azure.KubeletCredential = "certificate"
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := os.ReadFile(filepath.Join(w.root, "/var/lib/kubelet/kubeconfig"))
	if err != nil || strings.Contains(string(kubeconfig), "exec:") {
		t.Errorf("kubelet's kubeconfig: %v\n%s", err, kubeconfig)
	}
	sim.Adjust(func(k *azuresim.Knobs) {
		k.Faults = map[azuresim.Service]azuresim.Fault{azuresim.Entra: {Outage: true},
			azuresim.ARM: {Outage: true}}
	})
	if result, err := w.bootstrap(); err != nil || result.Changes != 0 {
		t.Errorf("again, with Azure down: %d changes, %v", result.Changes, err)
	}
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}
