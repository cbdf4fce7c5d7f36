package endpoint

import (
	"io/fs"
	"slices"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// files are the files of a machine, by path.
type files map[string]string

func (f files) ReadFile(path string) ([]byte, error) {
	if text, ok := f[path]; ok {
		return []byte(text), nil
	}
	return nil, fs.ErrNotExist
}

// Each way to join, to follow a provider, and to fetch programs and images needs its own servers. A
// node that runs needs few of them at once.
func TestNeeded(t *testing.T) {
	const (
		github = "https://github.com programs"
		dl     = "https://dl.k8s.io programs"
		mcr    = "https://mcr.microsoft.com container images"
		arm    = "https://management.azure.com Azure Resource Manager"
		now    = " (now)"
	)
	for name, tt := range map[string]struct {
		change  func(*config.Config)
		joining bool
		files   files
		want    []string
	}{
		"a join with a token": {func(c *config.Config) {
			c.Azure.BootstrapToken = &config.BootstrapToken{}
		}, true, nil, []string{github + now, dl + now, mcr + now}},
		"a node with a certificate": {func(c *config.Config) {
			c.Azure.BootstrapToken = &config.BootstrapToken{}
		}, false, nil, []string{github, dl, mcr}},
		"a node that follows its provider": {func(c *config.Config) {
			c.Azure.ServicePrincipal, c.ContinuousMonitoring = &config.ServicePrincipal{}, true
		}, false, nil, []string{"https://login.microsoftonline.com Entra ID" + now,
			arm + ", the resource provider" + now, github, dl, mcr}},
		"a node that follows Resource Manager": {func(c *config.Config) {
			c.Azure.BootstrapToken, c.ContinuousMonitoring = &config.BootstrapToken{}, true
			c.Agent.Monitoring.Endpoint = config.ResourceManager
		}, false, nil, []string{"https://management.azure.com the resource provider" + now, github, dl,
			mcr}},
		"a node that shows a token of the VM": {func(c *config.Config) {
			c.Azure.ManagedIdentity = &config.ManagedIdentity{}
			c.Azure.KubeletCredential = config.CredentialToken
			c.Node.Kubelet.ServerURL = "https://api.example:6443"
			c.Node.Kubelet.CACertData = "ca"
		}, false, nil, []string{Metadata + " the VM's metadata service" + now, github, dl, mcr}},
		"a join through Arc": {func(c *config.Config) { c.Azure.Arc = &config.Arc{} }, true, nil,
			[]string{arm + now, "https://packages.microsoft.com the package of the Arc agent",
				"https://gbl.his.arc.azure.com Azure Arc: identity" + now,
				"https://agentserviceapi.guestconfiguration.azure.com Azure Arc: agent",
				github + now, dl + now, mcr + now}},
		"Arc in another cloud, its agent from a mirror": {func(c *config.Config) {
			c.Azure.ResourceManagerEndpoint = "https://management.example"
			c.Azure.Arc = &config.Arc{Package: &config.ArcPackage{URL: "http://apt.example/arc"}}
		}, false, nil, []string{"https://management.example Azure Resource Manager",
			"http://apt.example the package of the Arc agent", github, dl, mcr}},
		"programs and images from mirrors": {func(c *config.Config) {
			c.Azure.BootstrapToken = &config.BootstrapToken{}
			c.Artifacts.Mirrors = []string{"https://one.example/flex", "https://two.example"}
		}, true, files{"/etc/containerd/certs.d/_default/hosts.toml": `
server = "https://upstream.example"
[host."https://images.example:5000/v2"]
  capabilities = ["pull"]
[host."no server"]
`}, []string{"https://one.example programs (mirror)" + now, "https://two.example programs (mirror)",
			github, dl, "https://images.example:5000 container images (mirror)", mcr}},
		"programs from a directory": {func(c *config.Config) {
			c.Azure.BootstrapToken = &config.BootstrapToken{}
			c.Artifacts.Directory = "/srv/flex"
		}, true, nil, []string{mcr}},
	} {
		t.Run(name, func(t *testing.T) {
			defaults, _ := config.Read([]byte("{}"), nil) // the defaults alone
			c := defaults.Config
			tt.change(&c)
			var got []string
			list := Needed(Asked{Config: c, Joining: tt.joining, Server: "https://api.example:6443",
				Arch: "amd64", ReadFile: tt.files.ReadFile})
			for _, e := range list {
				line := e.URL + " " + e.Purpose
				if e.Needed {
					line += now
				}
				if e.Cluster != (e.URL == "https://api.example:6443") {
					t.Errorf("%s: it is the API server: %t", line, e.Cluster)
				}
				got = append(got, line)
			}
			want := append([]string{"https://api.example:6443 the API server" + now}, tt.want...)
			if !slices.Equal(got, want) {
				t.Errorf("the servers are\n%q, want\n%q", got, want)
			}
		})
	}
}
