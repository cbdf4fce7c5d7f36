package node

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// base is a valid configuration of a node that joins with a bootstrap token.
func base() config.Config {
	c := config.Config{
		Azure:      config.Azure{BootstrapToken: &config.BootstrapToken{Token: "abcdef.0123456789abcdef"}},
		Kubernetes: config.Kubernetes{Version: "1.34.4"},
		Containerd: config.Containerd{Version: "2.2.1", PauseImage: "mcr.microsoft.com/oss/kubernetes/pause:3.10", MetricsAddress: "127.0.0.1:10257"},
		Runc:       config.Runc{Version: "1.3.4"},
		CNI:        config.CNI{Version: "1.9.1"},
		NPD:        config.NPD{Version: "1.34.0"},
		Node: config.Node{
			MaxPods: 110,
			Labels:  map[string]string{"kubernetes.azure.com/managed": "false", "example.com/site": "north"},
			Kubelet: config.Kubelet{Verbosity: 2, ImageGCHighThreshold: 85, ImageGCLowThreshold: 80, DNSServiceIP: "10.0.0.10"},
		},
		Paths: config.Paths{
			Kubernetes: config.KubernetesPaths{
				ConfigDir: "/etc/kubernetes", CertsDir: "/etc/kubernetes/certs", ManifestsDir: "/etc/kubernetes/manifests",
				VolumePluginDir: "/etc/kubernetes/volumeplugins", KubeletDir: "/var/lib/kubelet",
			},
			CNI: config.CNIPaths{BinDir: "/opt/cni/bin", ConfDir: "/etc/cni/net.d"},
		},
		Agent: config.Agent{LogDir: "/var/log/aks-flex-node", NodeName: "edge-1"},
	}
	return c
}

func facts() Facts {
	store := map[string]string{}
	for i, name := range []string{"containerd", "kubelet", "runc", "cni-plugins", "kubectl", "kubeadm", "node-problem-detector"} {
		store[name] = path.Join(StoreDir, strings.Repeat(fmt.Sprint(i), 8))
	}
	return Facts{Arch: "amd64", Server: "https://cluster.example:443", CA: "-----CA-----\n", ResolvConf: "/etc/resolv.conf", Program: "/usr/local/bin/aks-flex-node", Store: store}
}

// text shows a whole node, for golden files.
func text(d state.Desired) string {
	var b strings.Builder
	for _, item := range d {
		fmt.Fprintf(&b, "%s: %s\n", item.Step, state.Describe(state.Change{To: item.Resource}))
		if file, ok := item.Resource.(state.File); ok {
			fmt.Fprintf(&b, "  mode %04o\n", file.Mode)
			for line := range strings.Lines(file.Content) {
				b.WriteString("  | " + line)
			}
		} else {
			fmt.Fprintf(&b, "  %s\n", state.Show(item.Resource))
		}
		if len(item.Owes) > 0 {
			fmt.Fprintf(&b, "  owes %s\n", strings.Join(item.Owes, " "))
		}
	}
	return b.String()
}

// What the resource provider hands out becomes a node: its golden bundles are parsed and rendered here.
func TestBundlesOfTheProvider(t *testing.T) {
	bundles, err := filepath.Glob("../../api/flexnode/v20260501preview/testdata/*.json")
	if err != nil || len(bundles) < 5 {
		t.Fatalf("%d bundles, %v", len(bundles), err)
	}
	for _, path := range bundles {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c, warnings, err := config.Parse(data, config.Host{HostName: "host", Arch: "amd64"})
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v %v", name, err, warnings)
			continue
		}
		golden(t, "bundle-"+name, text(Render(c, facts())))
	}
}

// golden compares a node with the one that is kept.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("node differs from %s (-want +got):\n%s", path, diff)
	}
}

func TestRender(t *testing.T) {
	tests := []struct {
		name   string
		config func(*config.Config)
		facts  func(*Facts)
	}{
		{name: "before-join"},
		{name: "identity-token", config: func(c *config.Config) {
			c.Azure = config.Azure{ServicePrincipal: &config.ServicePrincipal{ClientID: "id", ClientSecretFile: "sp-secret"}, KubeletCredential: config.CredentialToken}
		}},
		{name: "identity-certificate", config: func(c *config.Config) {
			c.Azure = config.Azure{ManagedIdentity: &config.ManagedIdentity{}, KubeletCredential: config.CredentialCertificate}
		}},
		{name: "joined", facts: func(f *Facts) { f.Joined, f.PodCIDR = true, "10.244.3.0/24" }},
		{name: "containerd-1.7", config: func(c *config.Config) { c.Containerd.Version = "1.7.30" }},
		{name: "foreign-cni", facts: func(f *Facts) { f.PodCIDR, f.ForeignCNI = "10.244.3.0/24", []string{"05-cilium.conflist"} }},
		{name: "swap", facts: func(f *Facts) { f.Swaps, f.SwapUnits = []string{"/swap.img"}, []string{"swap.img.swap"} }},
		{name: "tuned", config: func(c *config.Config) {
			c.Kubernetes.Version = "1.29.0"
			c.Node.Taints = []string{"dedicated=edge:NoSchedule", "slow:PreferNoSchedule"}
			c.Node.Kubelet.NodeIP = "192.0.2.7"
			c.Node.Kubelet.KubeReserved = map[string]string{"cpu": "200m", "memory": "512Mi"}
			c.Node.Kubelet.EvictionHard = map[string]string{"memory.available": "500Mi"}
		}, facts: func(f *Facts) { f.PodCIDR = "fd00:10:244:3::/64" }},
		{name: "proxy", config: func(c *config.Config) {
			c.Proxy = config.Proxy{HTTPS: `http://user:p"a$s@proxy.example:3128`, NoProxy: []string{"registry.example"}}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, f := base(), facts()
			if tt.config != nil {
				tt.config(&c)
			}
			if tt.facts != nil {
				tt.facts(&f)
			}
			got := text(Render(c, f))
			golden(t, tt.name, got)
			if again := text(Render(c, f)); again != got {
				t.Error("rendering twice gave two different nodes")
			}
		})
	}
}

// Every file, link and directory must have a parent that is declared before it, or that every machine has: a parent made in
// passing would escape the ledger.
func TestRenderDeclaresParents(t *testing.T) {
	c, f := base(), facts()
	f.Joined, f.PodCIDR = true, "10.244.3.0/24"
	c.Proxy.HTTPS = "http://proxy.example:3128"
	have := map[string]bool{}
	for _, dir := range []string{"/", "/etc", "/opt", "/run", "/usr", "/usr/local", "/var", "/var/lib", "/var/log", "/etc/systemd/system"} {
		have[dir] = true
	}
	for _, item := range Render(c, f) {
		name, ok := strings.CutPrefix(string(item.Resource.Key()), "path:")
		if !ok {
			continue
		}
		if !have[path.Dir(name)] {
			t.Errorf("%s: its directory %s is declared by no one", name, path.Dir(name))
		}
		if _, ok := item.Resource.(state.Dir); ok {
			have[name] = true
		}
	}
}

// Steps come in their order, keys are unique, and secrets are in files of mode 0600 that say so.
func TestRenderInvariants(t *testing.T) {
	c, f := base(), facts()
	f.PodCIDR = "10.244.3.0/24"
	c.Proxy.HTTPS = "http://user:canary-proxy@proxy.example:3128"
	seen, last := map[state.Key]bool{}, 0
	order := map[state.Step]int{}
	for i, step := range state.Steps() {
		order[step] = i
	}
	for _, item := range Render(c, f) {
		key := item.Resource.Key()
		if seen[key] {
			t.Errorf("%s is declared twice", key)
		}
		seen[key] = true
		if order[item.Step] < last {
			t.Errorf("%s of step %s comes after a later step", key, item.Step)
		}
		last = order[item.Step]
		file, ok := item.Resource.(state.File)
		if !ok {
			continue
		}
		for _, secret := range []string{"canary-proxy", "0123456789abcdef"} {
			if strings.Contains(file.Content, secret) && (file.Mode != 0o600 || !file.Secret) {
				t.Errorf("%s holds a secret but has mode %04o, secret %v", file.Path, file.Mode, file.Secret)
			}
		}
	}
}
