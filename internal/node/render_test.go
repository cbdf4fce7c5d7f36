package node

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const testToken = "abcdef.0123456789abcdef"

// base is a valid configuration of a node that joins with a bootstrap token.
func base() config.Config {
	return config.Config{
		Azure:      config.Azure{BootstrapToken: &config.BootstrapToken{Token: testToken}},
		Kubernetes: config.Kubernetes{Version: "1.34.4"},
		Containerd: config.Containerd{
			Version:        "2.2.1",
			PauseImage:     "mcr.microsoft.com/oss/kubernetes/pause:3.10",
			MetricsAddress: "127.0.0.1:10257",
		},
		Runc: config.Runc{Version: "1.3.4"},
		CNI:  config.CNI{Version: "1.9.1"},
		NPD:  config.NPD{Version: "1.34.0"},
		Node: config.Node{
			MaxPods: 110,
			Labels: map[string]string{
				"kubernetes.azure.com/managed": "false",
				"example.com/site":             "north",
			},
			Kubelet: config.Kubelet{
				Verbosity:            2,
				ImageGCHighThreshold: 85,
				ImageGCLowThreshold:  80,
				DNSServiceIP:         "10.0.0.10",
			},
		},
		Paths: config.Paths{
			Kubernetes: config.KubernetesPaths{
				ConfigDir:       "/etc/kubernetes",
				CertsDir:        "/etc/kubernetes/certs",
				ManifestsDir:    "/etc/kubernetes/manifests",
				VolumePluginDir: "/etc/kubernetes/volumeplugins",
				KubeletDir:      "/var/lib/kubelet",
			},
			CNI: config.CNIPaths{BinDir: "/opt/cni/bin", ConfDir: "/etc/cni/net.d"},
		},
		Agent: config.Agent{LogDir: "/var/log/aks-flex-node", NodeName: "edge-1"},
	}
}

func facts() Facts {
	store := map[string]string{}
	for i, name := range []string{
		"containerd", "kubelet", "runc", "cni-plugins", "kubectl", "kubeadm",
		"node-problem-detector",
	} {
		store[name] = path.Join(StoreDir, strings.Repeat(fmt.Sprint(i), 8))
	}
	return Facts{Arch: "amd64", ResolvConf: "/etc/resolv.conf", Store: store}
}

// bindings are the bindings of a node that has not joined.
func bindings() Bindings {
	return Bindings{
		Server:         "https://cluster.example:443",
		CA:             "-----CA-----\n",
		Program:        "/usr/local/bin/aks-flex-node",
		BootstrapToken: testToken,
	}
}

// example is a node of which a golden file is kept.
type example struct {
	name     string
	config   func(*config.Config)
	facts    func(*Facts)
	bindings func(*Bindings)
}

// inputs returns the inputs that the example is rendered from.
func (e example) inputs() (config.Config, Facts, Bindings) {
	c, f, b := base(), facts(), bindings()
	if e.config != nil {
		e.config(&c)
	}
	if e.facts != nil {
		e.facts(&f)
	}
	if e.bindings != nil {
		e.bindings(&b)
	}
	return c, f, b
}

func withIdentity(a config.Azure) func(*config.Config) {
	return func(c *config.Config) { c.Azure = a }
}

func joined(b *Bindings) { b.Joined, b.PodCIDRs = true, []string{"10.244.3.0/24"} }

func examples() []example {
	principal := &config.ServicePrincipal{ClientID: "id", ClientSecretFile: "sp-secret"}
	return []example{
		{name: "before-join"},
		{name: "identity-token", config: withIdentity(config.Azure{
			ServicePrincipal:  principal,
			KubeletCredential: config.CredentialToken,
		})},
		{name: "identity-certificate", config: withIdentity(config.Azure{
			ManagedIdentity:   &config.ManagedIdentity{},
			KubeletCredential: config.CredentialCertificate,
			Registries:        []string{"*.azurecr.io", "registry.example:5000"},
		})},
		{name: "joined", bindings: joined},
		{name: "containerd-1.7", config: func(c *config.Config) {
			c.Containerd.Version = "1.7.30"
		}},
		{name: "foreign-cni", bindings: func(b *Bindings) {
			b.PodCIDRs, b.ForeignCNI = []string{"10.244.3.0/24"}, []string{"05-cilium.conflist"}
		}},
		{name: "swap", facts: func(f *Facts) {
			f.Processors, f.Memory = 4000, 8<<30
			f.SwapUnits = []string{"swap.img.swap"}
		}},
		{name: "tuned", config: func(c *config.Config) {
			c.Kubernetes.Version = "1.29.0"
			c.Node.Taints = []string{"dedicated=edge:NoSchedule", "slow:PreferNoSchedule"}
			c.Node.Kubelet.NodeIP = "192.0.2.7"
			c.Node.Kubelet.KubeReserved = map[string]string{"cpu": "200m", "memory": "512Mi"}
			c.Node.Kubelet.EvictionHard = map[string]string{"memory.available": "500Mi"}
		}, bindings: func(b *Bindings) { b.PodCIDRs = []string{"fd00:10:244:3::/64"} }},
		{name: "proxy", config: func(c *config.Config) {
			c.Proxy = config.Proxy{
				HTTPS:   `http://user:p"a$s@proxy.example:3128`,
				NoProxy: []string{"registry.example"},
			}
		}},
		{name: "two-families", bindings: func(b *Bindings) {
			joined(b)
			b.PodCIDRs = []string{"10.244.3.0/24", "fd00:10:244:3::/64"}
		}},
		{name: "nvidia", facts: func(f *Facts) { f.NvidiaRuntime = "/usr/bin/nvidia-container-runtime" }},
		{name: "nvidia-1.7", config: func(c *config.Config) { c.Containerd.Version = "1.7.30" },
			facts: func(f *Facts) { f.NvidiaRuntime = "/usr/bin/nvidia-container-runtime" }},
		{name: "direct", config: func(c *config.Config) {
			c.CNI.NonMasqueradeCIDRs = []string{"10.244.0.0/16", "fd00:10:244::/48", "10.9.0.0/16"}
		}, bindings: func(b *Bindings) {
			joined(b)
			b.PodCIDRs = []string{"10.244.3.0/24", "fd00:10:244:3::/64"}
		}},
		{name: "rebound", bindings: func(b *Bindings) {
			joined(b)
			b.Rebound = true
		}},
	}
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
		if item.Needs != "" {
			fmt.Fprintf(&b, "  needs %s\n", item.Needs)
		}
		if item.Only != "" {
			fmt.Fprintf(&b, "  only %s\n", item.Only)
		}
	}
	return b.String()
}

// baseNode is the example whose golden file has the whole node; the others have what differs.
const baseNode = "joined"

// baseText returns the text of the base node.
var baseText = sync.OnceValue(func() string {
	list := examples()
	i := slices.IndexFunc(list, func(e example) bool { return e.name == baseNode })
	c, f, b := list[i].inputs()
	return text(Bind(Render(c, f), b))
})

// differences lists the lines that only one of two nodes has, as - and +, below the headings of the
// resources that they are in or follow.
func differences(old, now string) string {
	a, b := strings.SplitAfter(old, "\n"), strings.SplitAfter(now, "\n")
	common := make([][]int, len(a)+1) // the lengths of the longest common parts of a[i:] and b[j:]
	common[len(a)] = make([]int, len(b)+1)
	for i := len(a) - 1; i >= 0; i-- {
		common[i] = make([]int, len(b)+1)
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out strings.Builder
	heading, shown := "", ""
	mark := func(sign, line string) {
		if heading != shown {
			out.WriteString("@ " + heading)
			shown = heading
		}
		out.WriteString(sign + line)
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			if !strings.HasPrefix(a[i], " ") {
				heading = a[i]
			}
			i, j = i+1, j+1
		case i < len(a) && common[i+1][j] == common[i][j]:
			mark("-", a[i])
			i++
		default:
			mark("+", b[j])
			j++
		}
	}
	return out.String()
}

// golden compares a node with the one that is kept.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if name != baseNode {
		got = differences(baseText(), got)
	}
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

// The golden files show nodes as they are bound, one of them whole and the others by what differs
// from it, so that every byte can be reviewed.
func TestBind(t *testing.T) {
	for _, e := range examples() {
		t.Run(e.name, func(t *testing.T) {
			c, f, b := e.inputs()
			got := text(Bind(Render(c, f), b))
			golden(t, e.name, got)
			if again := text(Bind(Render(c, f), b)); again != got {
				t.Error("rendering twice gave two different nodes")
			}
		})
	}
}

// The golden files show nodes as they are rendered, one for each way in which a node proves who it
// is: everything that it can become, with placeholders.
func TestRender(t *testing.T) {
	for _, e := range examples() {
		c, f, _ := e.inputs()
		rendered := text(Render(c, f))
		switch e.name {
		case "before-join", "identity-token", "identity-certificate":
			golden(t, "rendered-"+e.name, rendered)
		}
		if strings.Contains(rendered, "{{") {
			t.Errorf("%s: a place in an embedded file is not filled in", e.name)
		}
	}
}

// bundle is a configuration that the resource provider hands out.
func bundle(t *testing.T, path string) (name string, c config.Config) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Parse(data, config.Host{HostName: "host", Arch: "amd64"})
	c = loaded.Config
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return "bundle-" + strings.TrimSuffix(filepath.Base(path), ".json"), c
}

func bundles(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("../../api/flexnode/v20260501preview/testdata/*.json")
	if err != nil || len(paths) < 5 {
		t.Fatalf("%d bundles, %v", len(paths), err)
	}
	return paths
}

// What the resource provider hands out becomes a node.
func TestBundlesOfTheProvider(t *testing.T) {
	for _, path := range bundles(t) {
		name, c := bundle(t, path)
		golden(t, name, text(Bind(Render(c, facts()), bindings())))
	}
}

// What an owner has said at the provider about single kinds of drift is what the agent does.
func TestDriftPoliciesOfTheProvider(t *testing.T) {
	_, c := bundle(t, "../../api/flexnode/v20260501preview/testdata/token-monitored.json")
	for kind, want := range map[string]string{
		"unit": config.DriftRepair, "sysctl": config.DriftOff, "path": config.DriftReport,
	} {
		if got := c.Agent.DriftPolicyOf(kind); got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
}

// everything is a node that has joined and has a proxy.
func everything() state.Desired {
	c, b := base(), bindings()
	c.Proxy.HTTPS = "http://user:canary-proxy@proxy.example:3128"
	joined(&b)
	return Bind(Render(c, facts()), b)
}

// Every file, link and directory must have a parent that is declared before it, or that every
// machine has: a parent made in passing would escape the ledger.
func TestParentsAreDeclared(t *testing.T) {
	have := map[string]bool{}
	for _, dir := range []string{
		"/", "/etc", "/opt", "/run", "/usr", "/usr/local", "/var", "/var/lib", "/var/log",
		"/etc/systemd/system",
	} {
		have[dir] = true
	}
	for _, item := range everything() {
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

// Items that wait for nothing come in the order of their steps; nothing waits for less than what is
// before it; and in a bound node each thing is declared once.
func TestOrder(t *testing.T) {
	steps, needs := map[state.Step]int{}, map[state.Need]int{"": 0, Network: 1, Ready: 2}
	for i, step := range state.Steps() {
		steps[step] = i
	}
	for _, e := range examples() {
		c, f, b := e.inputs()
		seen, last := map[state.Key]bool{}, state.Item{Step: state.Directories}
		for _, item := range Bind(Render(c, f), b) {
			key := item.Resource.Key()
			if seen[key] {
				t.Errorf("%s: %s is declared twice", e.name, key)
			}
			seen[key] = true
			if needs[item.Needs] < needs[last.Needs] {
				t.Errorf("%s: %s needs less than what is before it", e.name, key)
			}
			if item.Needs == "" && steps[item.Step] < steps[last.Step] {
				t.Errorf("%s: %s of step %s comes after a later step", e.name, key, item.Step)
			}
			last = item
		}
	}
}

// Secrets are in files of mode 0600 that say so.
func TestSecrets(t *testing.T) {
	c, b := base(), bindings()
	c.Proxy.HTTPS = "http://user:canary-proxy@proxy.example:3128"
	found := 0
	for _, item := range Bind(Render(c, facts()), b) {
		file, ok := item.Resource.(state.File)
		if !ok {
			continue
		}
		for _, secret := range []string{"canary-proxy", testToken} {
			if !strings.Contains(file.Content, secret) {
				continue
			}
			found++
			if file.Mode != 0o600 {
				t.Errorf("%s holds a secret but has mode %04o", file.Path, file.Mode)
			}
		}
	}
	if found != 4 { // the bootstrap token, and the proxy of three services
		t.Errorf("%d files hold a secret, want 4", found)
	}
	if rendered := text(Render(c, facts())); strings.Contains(rendered, testToken) {
		t.Error("the bootstrap token is in the rendered node")
	}
}

// A node without its services' proxy reaches no server: each service that we run has one.
func TestEveryServiceHasTheProxy(t *testing.T) {
	d := everything()
	for _, unit := range []string{ContainerdUnit, KubeletUnit, NPDUnit} {
		dropIn := unitDir + "/" + unit + ".d/10-aks-flex-node-proxy.conf"
		item := find(t, d, state.PathKey(dropIn))
		if fmt.Sprint(item.Owes) != fmt.Sprint([]string{state.DaemonReload, unit}) {
			t.Errorf("%s owes %v", dropIn, item.Owes)
		}
	}
}

// A disk that its owner has mounted on kubelet's directory is not ours to unmount.
func TestKubeletDirectoryIsNoMountOfOurs(t *testing.T) {
	item := find(t, everything(), state.PathKey("/var/lib/kubelet"))
	want := []string{"pods", "plugins"}
	if diff := cmp.Diff(want, item.Resource.(state.Dir).Mounts); diff != "" {
		t.Errorf("mounts of kubelet's directory (-want +got):\n%s", diff)
	}
}

// find returns the item of a key.
func find(t *testing.T, d state.Desired, key state.Key) state.Item {
	t.Helper()
	for _, item := range d {
		if item.Resource.Key() == key {
			return item
		}
	}
	t.Fatalf("%s is not part of the node", key)
	return state.Item{}
}

func TestFoundation(t *testing.T) {
	want := []state.Key{
		"path:/opt/aks-flex-node", "path:/opt/aks-flex-node/store",
	}
	d := Foundation(base())
	if diff := cmp.Diff(want, d.Keys()); diff != "" {
		t.Errorf("foundation (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, Render(base(), facts()).Keys()[:len(want)]); diff != "" {
		t.Errorf("the node does not begin with its foundation (-want +got):\n%s", diff)
	}
}
