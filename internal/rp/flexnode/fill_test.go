package flexnode

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/config/leftopen"
)

// A new revision leaves no setting open for an agent to fill in, and keeps the given settings.
func TestARevisionLeavesNothingOpen(t *testing.T) {
	g := generator(t)
	for range 500 {
		w := newWorld(t)
		operator := pick(g, nil, object{"artifacts": object{"mirror": "https://mirror.example"}},
			object{"node": object{
				"maxPods": 42, "labels": object{"from": "operator"},
				"kubelet": object{"podPidsLimit": 999, "seccompDefault": false},
			}, "azure": object{"cloud": "AzureChinaCloud"}, "network": object{"firewall": "ignore"}})
		w.defaults(operator)
		f := someFacts()
		w.reach(f, "1.35.4")
		if pick(g, false, false, true) {
			w.unreached()
		}
		w.put(randomDesired(g))
		if w.node.Revision == 0 {
			w.reach(f, "1.35.4")
			w.refresh()
		}
		whole := must(readObject([]byte(w.config(w.last()))))
		if w.node.Desired.AzureAuth.Method == api.BootstrapToken ||
			!w.node.Desired.KubernetesAuth.UseAzureAuth {
			grant(whole, Grants{Token: anyToken})
		}
		open, _ := leftopen.Find(whole, config.Host{})
		for _, path := range saidByFacts() {
			drop(open, path)
		}
		if settings(open) > 0 {
			t.Fatalf("%+v leaves open %v", w.node.Desired, open)
		}
		loaded, err := config.Parse(must(json.Marshal(whole)), config.Host{HostName: "x", Arch: "amd64"})
		c := loaded.Config
		if err != nil && !strings.Contains(err.Error(), "clientSecret") {
			t.Fatal(err)
		}
		if err == nil && operator["node"] != nil {
			k := c.Node.Kubelet
			if c.Azure.Cloud != config.ChinaCloud || *k.PodPidsLimit != 999 || *k.SeccompDefault ||
				c.Network.Firewall != config.FirewallIgnore ||
				!strings.HasSuffix(c.Azure.AuthorityHost, ".cn") ||
				c.Node.MaxPods != 42 && w.node.Desired.NodeConfig.MaxPods == 0 {
				t.Fatalf("what the operator has said does not hold: %s", w.config(w.last()))
			}
		}
	}
}

// A new revision is checked while it is made, with the same findings as checkNode.
func TestWhatIsMadeIsWhatIsChecked(t *testing.T) {
	g := generator(t)
	spoil := []func(*Node){
		func(*Node) {},
		func(n *Node) { n.Desired.NodeConfig.MaxPods = 100_000 },
		func(n *Node) { n.Desired.NodeConfig.Labels = map[string]string{"kubernetes.io/x": "-"} },
		func(n *Node) { n.Desired.NodeConfig.Taints = []string{"a=b:Never", "a=b:Never"} },
		func(n *Node) { n.Desired.NodeConfig.Kubelet.Verbosity = new(-1) },
		func(n *Node) { n.Desired.NodeConfig.Kubelet.NodeIP = "300.1.1.1" },
		func(n *Node) { n.Desired.NodeConfig.Kubelet.ImageGCHighThreshold = new(5) },
		func(n *Node) {
			n.Desired.NodeConfig.Kubelet.EvictionHard = map[string]string{"memory": "100%"}
		},
		func(n *Node) { n.Desired.DriftPolicies = map[string]string{"moon": "repair"} },
		func(n *Node) { n.Desired.UpgradePolicy.Drain = "perhaps" },
		func(n *Node) { n.Desired.Monitoring.Endpoint = "http://plain.example" },
		func(n *Node) { n.Chosen.Versions.Containerd = "1.6.0" },
		func(n *Node) { n.Chosen.Versions.Kubernetes, n.Chosen.Versions.Runc = "1.36.3", "x" },
		func(n *Node) { n.Chosen.Versions = Versions{} },
		func(n *Node) { n.Chosen.PodCIDR = "fe80::/1" },
	}
	bad := 0
	for i := range 600 {
		operator := pick(g, nil, object{"artifacts": object{"mirror": "https://mirror.example"}},
			object{"azure": object{"cloud": "AzureChinaCloud"}, "network": object{"firewall": "x"}},
			object{"agent": object{"readyTimeout": "soon"}, "node": object{"maxPods": "many"}})
		parent := Parent{Defaults: DefaultsLayer(operator)}
		if i%5 != 0 {
			parent.FactsLayer = FactsLayer(someFacts(), cluster)
		}
		desired, _ := WithoutSecret(complete(randomDesired(g)))
		n := Node{ID: nodeID, Desired: desired}
		n.Chosen.Versions, _ = chooser{want: desired.Versions, server: "1.35.4"}.choose()
		spoil[i%len(spoil)](&n)
		network := pick(g, "", "10.244.0.0/16")
		own, got := n.wholeOwnLayer(network, parent)
		if diff := cmp.Diff(checkNode(n, own, parent), got); diff != "" {
			t.Fatalf("%+v: in what was made (-), while it was (+):\n%s", n, diff)
		}
		bad += min(len(got), 1)
	}
	if bad < 100 || bad > 590 {
		t.Errorf("%d of 600 were bad", bad)
	}
}

// settings counts the settings of an object, including nested ones.
func settings(o object) int {
	n := 0
	for _, value := range o {
		if inner, ok := value.(object); ok {
			n += settings(inner)
		} else {
			n++
		}
	}
	return n
}

// The address of the DNS service is not guessed: without it only a rendered node can be changed.
func TestNoDNSAddressIsGuessed(t *testing.T) {
	w := newWorld(t)
	silent := someFacts()
	silent.DNSServiceIP = ""
	w.reach(silent, "1.35.4")
	_, problems := w.decide(Desired{})
	if len(problems) != 1 || !strings.Contains(problems[0].Message, "Set dnsServiceIP") {
		t.Fatalf("the problems are %v", problems)
	}
	w.defaults(object{"node": object{"kubelet": object{"dnsServiceIP": "10.96.0.66"}}})
	if _, problems := w.decide(Desired{}); len(problems) > 0 {
		t.Errorf("the operator's defaults say it: %v", problems)
	}
	w.defaults(nil)
	w.unreached()
	w.put(Desired{})
	w.reach(silent, "1.35.4")
	if r := w.refresh(); r != nil || w.node.State != api.Failed || w.node.Reason != NoDNS {
		t.Errorf("rendered %v; the node is %s: %s", r, w.node.State, w.node.Reason)
	}
	told := someFacts()
	told.DNSServiceIP = "10.96.0.77"
	w.reach(told, "1.35.4")
	w.refresh()
	if text := w.config(w.last()); !strings.Contains(text, `"dnsServiceIP":"10.96.0.77"`) {
		t.Errorf("the address is not in %s", text)
	}
	w.reach(silent, "1.35.4")
	if r := w.refresh(); r == nil || w.node.State == api.Failed {
		t.Errorf("a node that there is does not go on: %+v", w.node)
	}
}

// The owner's settings of changes, drift and monitoring are rendered where the agent reads them.
func TestPoliciesAreRendered(t *testing.T) {
	w := newWorld(t)
	d := typical()
	d.DriftPolicy = "repair"
	d.DriftPolicies = map[string]string{"sysctl": "off", "unit": "report"}
	d.KubernetesAuth = KubernetesAuth{UseAzureAuth: true, KubeletCredential: "certificate"}
	d.UpgradePolicy = UpgradePolicy{
		Drain: "always", Deadline: "PT1H30M", ReadyTimeout: "PT7M",
		DrainOptions: DrainOptions{Force: new(true), DeleteEmptyDir: new(false)},
		MaintenanceWindow: &MaintenanceWindow{
			Days: []string{"Saturday"}, Start: "02:00", Duration: "PT4H", UTCOffset: "-05:00",
		},
	}
	d.Monitoring = Monitoring{Endpoint: "https://rp.example:8447/", Interval: "PT45S"}
	d.Network = Network{Metadata: "allow"}
	d.NodeConfig.Kubelet.Verbosity, d.NodeConfig.Kubelet.ImageGCLowThreshold = new(0), new(0)
	w.put(d)
	whole := must(Config(*w.last(), w.layers[w.last().Defaults], w.layers[w.last().Facts],
		Grants{ClientSecret: "x"}))
	c := parsed(must(json.Marshal(whole)))
	want := config.Agent{
		LogLevel: "info", LogFormat: "text", LogDir: "/var/log/aks-flex-node", NodeName: "edge-1",
		DriftPolicy: "repair", ReadyTimeout: "7m",
		DriftPolicies: map[string]string{"sysctl": "off", "unit": "report"},
		UpgradePolicy: config.UpgradePolicy{
			Drain: "always", Deadline: "1h30m",
			DrainOptions: config.DrainOptions{Force: true, DeleteEmptyDir: new(false)},
			MaintenanceWindow: &config.MaintenanceWindow{
				Days: []string{"Saturday"}, Start: "02:00", Duration: "4h", UTCOffset: "-05:00",
			},
		},
		Monitoring: config.Monitoring{Endpoint: "https://rp.example:8447", Interval: "45s"},
	}
	if diff := cmp.Diff(want, c.Agent); diff != "" ||
		c.Azure.KubeletCredential != config.CredentialCertificate ||
		c.Network.Metadata != config.MetadataAllow {
		t.Errorf("%s %s %v", diff, c.Azure.KubeletCredential, c.Network)
	}
	if k := c.Node.Kubelet; k.Verbosity != 0 || k.ImageGCLowThreshold != 0 {
		t.Errorf("zeros are lost: %+v", k)
	}
	expect(t, "an equal PUT made a revision", w.put(withoutSecret(d)).Revision != nil, false)
	d.DriftPolicies = map[string]string{}
	if again := w.put(withoutSecret(d)); again.Revision == nil ||
		strings.Contains(w.config(w.last()), "driftPolicies") {
		t.Error("policies that were taken back are still there")
	}
	d.DriftPolicies = nil
	expect(t, "none is another than an empty list of them", w.put(withoutSecret(d)).Revision != nil,
		false)
}

// The owner's setting for the metadata service takes precedence over the operator's, and that over
// the default. An owner who leaves it open gets no new revision because of either.
func TestMetadataAccess(t *testing.T) {
	w := newWorld(t)
	put := func(access string, changed bool, want string) {
		t.Helper()
		d := w.put(Desired{Network: Network{Metadata: access}})
		expect(t, access+": there is a revision", d.Revision != nil, changed)
		text := w.config(w.last())
		if !strings.Contains(text, `"network":{"firewall":"check","metadata":"`+want+`"}`) {
			t.Errorf("%q: want %s: %s", access, want, text)
		}
	}
	put("", true, "block")
	before := w.last().Own
	w.defaults(object{"network": object{"metadata": "allow"}})
	put("", false, "block")
	put("block", true, "block")
	put("block", false, "block")
	put("", true, "allow")
	expect(t, "the own layer of a node that leaves it open", string(w.last().Own), string(before))
	w.defaults(nil)
	put("", false, "allow")
	put("allow", true, "allow")
	put("", true, "block")
}

// Problems of policies are reported in terms of the resource, all at once.
func TestProblemsOfPolicies(t *testing.T) {
	for want, change := range map[string]func(*Desired){
		"driftPolicy": func(d *Desired) { d.DriftPolicy = "maybe" },
		"driftPolicies.unit": func(d *Desired) {
			d.DriftPolicies = map[string]string{"unit": "fix", "path": "off"}
		},
		"driftPolicies.unit ": func(d *Desired) { d.DriftPolicies = map[string]string{"unit": ""} },
		"driftPolicies.files": func(d *Desired) {
			d.DriftPolicies = map[string]string{"files": "off"}
		},
		"upgradePolicy.drain":      func(d *Desired) { d.UpgradePolicy.Drain = "yes" },
		"upgradePolicy.deadline":   func(d *Desired) { d.UpgradePolicy.Deadline = "P3D" },
		"upgradePolicy.deadline ":  func(d *Desired) { d.UpgradePolicy.Deadline = "15m" },
		"upgradePolicy.deadline  ": func(d *Desired) { d.UpgradePolicy.Deadline = "PT" },
		"upgradePolicy.readyTimeout": func(d *Desired) {
			d.UpgradePolicy.ReadyTimeout = "PT1S"
		},
		"upgradePolicy.maintenanceWindow.start": func(d *Desired) {
			d.UpgradePolicy.MaintenanceWindow = &MaintenanceWindow{Duration: "PT4H"}
		},
		"upgradePolicy.maintenanceWindow.duration": func(d *Desired) {
			d.UpgradePolicy.MaintenanceWindow = &MaintenanceWindow{
				Start: "02:00", Duration: "P1M",
			}
		},
		"upgradePolicy.maintenanceWindow.days[0]": func(d *Desired) {
			d.UpgradePolicy.MaintenanceWindow = &MaintenanceWindow{
				Start: "02:00", Duration: "PT4H", Days: []string{"monday"},
			}
		},
		"monitoring.endpoint":  func(d *Desired) { d.Monitoring.Endpoint = "http://rp" },
		"monitoring.endpoint ": func(d *Desired) { d.Monitoring.Endpoint = "https://a:b@rp" },
		"network.metadata":     func(d *Desired) { d.Network.Metadata = "deny" },
		"monitoring.interval":  func(d *Desired) { d.Monitoring.Interval = "PT0.5S" },
		"kubernetesAuth.kubeletCredential": func(d *Desired) {
			d.KubernetesAuth.KubeletCredential = "token"
		},
		"kubernetesAuth.kubeletCredential ": func(d *Desired) {
			d.KubernetesAuth.KubeletCredential = "password"
		},
	} {
		w, d := newWorld(t), Desired{}
		change(&d)
		_, problems := w.decide(d)
		expect(t, want, targets(problems), "properties."+strings.TrimSpace(want))
	}
}

// The API has the same kinds of drift as the agent.
func TestKindsOfDrift(t *testing.T) {
	var document struct {
		Definitions map[string]struct{ Properties object }
	}
	text := must(os.ReadFile("../../../docs/api/openapi.json"))
	must(0, json.Unmarshal(text, &document))
	kinds := slices.Sorted(maps.Keys(document.Definitions["DriftPolicies"].Properties))
	w, d := newWorld(t), Desired{DriftPolicies: map[string]string{}}
	for _, kind := range kinds {
		d.DriftPolicies[kind] = "repair"
	}
	if _, problems := w.decide(d); len(problems) > 0 {
		t.Error(problems)
	}
	_, problems := w.decide(Desired{DriftPolicies: map[string]string{"": "off"}})
	if len(problems) != 1 {
		t.Fatal(problems)
	}
	_, list, _ := strings.Cut(problems[0].Message, "one of ")
	agents := strings.Split(list, ", ")
	slices.Sort(agents)
	expect(t, "the kinds of the API, and those of the agent", kinds, agents)
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]string{
		"PT15M": "15m", "PT90S": "1m30s", "PT1H": "1h", "P1D": "24h", "P1DT1H1M1S": "25h1m1s",
		"PT0S": "0s", "PT120M": "2h", "P": "", "PT": "", "P1DT": "", "15m": "", "P1W": "", "P1Y": "",
		"PT1.5H": "", "pt1h": "", "-PT1H": "", "PT100000H": "", "": "",
	} {
		got := duration(text).(string)
		expect(t, text, got, want)
		if want == "" {
			continue
		}
		if d, _ := parseDuration(text); must(time.ParseDuration(got)) != d {
			t.Errorf("%q is not %s", got, d)
		}
	}
}

// A configuration has the installation's label, beside the node's own or those of the defaults.
func TestInstallationLabel(t *testing.T) {
	defaults := DefaultsLayer(object{"node": object{"labels": object{"a": "operator"}}})
	for label, given := range map[string]map[string]string{
		"operator": nil, "owner": {"a": "owner", InstallationLabel: "forged"},
	} {
		own := ownLayer(Node{Desired: Desired{NodeConfig: NodeConfig{Labels: given}}}, "")
		Parent{Defaults: defaults, Installation: "here"}.mark(own)
		got, _ := own["node"].(object)["labels"].(object)
		if got["a"] != label || got[InstallationLabel] != "here" {
			t.Errorf("the labels of the %s: %v", label, got)
		}
	}
}

// A problem with the agent's configuration names what the owner wrote.
func TestPlace(t *testing.T) {
	for path, want := range map[string]string{
		"": "properties", "elsewhere": "properties", ".x": "properties", "agent.nodeName": "name",
		"agent.driftPolicies.unit": "properties.driftPolicies.unit",
		"node.taints[1]":           "properties.nodeConfig.taints[1]",
		"node.taintsOfOthers":      "properties",
	} {
		expect(t, path, (Node{}).place(path), want)
	}
}
