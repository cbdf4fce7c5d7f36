package flexnode

import (
	"cmp"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/config/leftopen"
)

// A new revision leaves no setting open for an agent to fill in, and keeps the given settings.
func TestARevisionLeavesNothingOpen(t *testing.T) {
	repeat(t, 500, func(g *rand.Rand, w *world) {
		operator := pick(g, nil, object{"artifacts": object{"mirror": "https://mirror.example"}},
			object{"node": object{
				"maxPods": 42, "labels": object{"from": "operator"},
				"kubelet": object{"podPidsLimit": 999, "seccompDefault": false},
			}, "azure": object{"cloud": "AzureChinaCloud"}, "network": object{"firewall": "ignore"}})
		w.defaults(operator)
		if pick(g, false, false, true) {
			w.unreached()
		}
		w.put(randomDesired(g))
		if w.node.Revision == 0 {
			w.reach(someFacts(), "1.35.4")
			w.refresh()
		}
		whole := must(readObject([]byte(w.config(w.last()))))
		d := w.node.Desired
		if d.AzureAuth.Method == api.BootstrapToken || !d.KubernetesAuth.UseAzureAuth {
			grant(whole, Grants{Token: anyToken})
		}
		open, _ := leftopen.Find(whole, config.Host{})
		for _, path := range saidByFacts() {
			drop(open, path)
		}
		expect(t, "what is left open", Diff(nil, open).Changes, []api.Change{})
		loaded, err := config.Parse(must(json.Marshal(whole)), anyHost())
		if err != nil && !strings.Contains(err.Error(), "clientSecret") {
			t.Fatal(err)
		}
		if c := loaded.Config; err == nil && operator["node"] != nil {
			k := c.Node.Kubelet
			shows(t, "what the operator has said", "AzureChinaCloud 999 false ignore true", c.Azure.Cloud,
				*k.PodPidsLimit, *k.SeccompDefault, c.Network.Firewall,
				strings.HasSuffix(c.Azure.AuthorityHost, ".cn"))
			expect(t, "the maximum of pods", c.Node.MaxPods, cmp.Or(d.NodeConfig.MaxPods, 42))
		}
	})
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
		if expect(t, "the problems found while it is made", got, checkNode(n, own, parent)); t.Failed() {
			t.Fatalf("of %+v", n)
		}
		bad += min(len(got), 1)
	}
	if bad < 100 || bad > 590 {
		t.Errorf("%d of 600 were bad", bad)
	}
}

// The address of the DNS service is not guessed: without it only a rendered node can be changed.
func TestNoDNSAddressIsGuessed(t *testing.T) {
	w := newWorld(t)
	answers := func(address string) {
		f := someFacts()
		f.DNSServiceIP = address
		w.reach(f, "1.35.4")
	}
	answers("")
	_, problems := w.decide(Desired{})
	expect(t, "problems", len(problems), 1)
	has(t, "the problem", problems[0].Message, "Set dnsServiceIP")
	w.defaults(object{"node": object{"kubelet": object{"dnsServiceIP": "10.96.0.66"}}})
	_, problems = w.decide(Desired{})
	expect(t, "problems if the operator's defaults say it", len(problems), 0)
	w.defaults(nil)
	w.unreached()
	w.put(Desired{})
	answers("")
	r := w.refresh()
	shows(t, "rendered without it", "false Failed "+NoDNS, r != nil, w.node.State, w.node.Reason)
	answers("10.96.0.77")
	w.refresh()
	has(t, "the configuration", w.config(w.last()), `"dnsServiceIP":"10.96.0.77"`)
	answers("")
	r = w.refresh()
	shows(t, "a node that is there goes on", "true ", r != nil, w.node.State)
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
	c := parsed(encode(w.whole(w.last(), Grants{ClientSecret: "x"})))
	expect(t, "the agent's section", c.Agent, config.Agent{
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
	})
	k := c.Node.Kubelet
	shows(t, "the others, of which two are zero", "certificate allow 0 0", c.Azure.KubeletCredential,
		c.Network.Metadata, k.Verbosity, k.ImageGCLowThreshold)
	expect(t, "an equal PUT made a revision", w.put(withoutSecret(d)).Revision != nil, false)
	d.DriftPolicies = map[string]string{}
	expect(t, "policies were taken back", w.put(withoutSecret(d)).Revision != nil, true)
	expect(t, "there are some", strings.Contains(w.config(w.last()), "driftPolicies"), false)
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
		has(t, access, w.config(w.last()), `"network":{"firewall":"check","metadata":"`+want+`"}`)
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
	const at = "upgradePolicy.maintenanceWindow."
	window := func(settings string) string {
		return `"upgradePolicy":{"maintenanceWindow":{` + settings + `}}`
	}
	for body, want := range map[string]string{
		`"driftPolicy":"maybe"`:                                       "driftPolicy",
		`"driftPolicies":{"unit":"fix","path":"off"}`:                 "driftPolicies.unit",
		`"driftPolicies":{"unit":""}`:                                 "driftPolicies.unit",
		`"driftPolicies":{"files":"off"}`:                             "driftPolicies.files",
		`"upgradePolicy":{"drain":"yes"}`:                             "upgradePolicy.drain",
		`"upgradePolicy":{"deadline":"P3D"}`:                          "upgradePolicy.deadline",
		`"upgradePolicy":{"deadline":"15m"}`:                          "upgradePolicy.deadline",
		`"upgradePolicy":{"deadline":"PT"}`:                           "upgradePolicy.deadline",
		`"upgradePolicy":{"readyTimeout":"PT1S"}`:                     "upgradePolicy.readyTimeout",
		window(`"duration":"PT4H"`):                                   at + "start",
		window(`"start":"02:00","duration":"P1M"`):                    at + "duration",
		window(`"start":"02:00","duration":"PT4H","days":["monday"]`): at + "days[0]",
		`"monitoring":{"endpoint":"http://rp"}`:                       "monitoring.endpoint",
		`"monitoring":{"endpoint":"https://a:b@rp"}`:                  "monitoring.endpoint",
		`"monitoring":{"interval":"PT0.5S"}`:                          "monitoring.interval",
		`"network":{"metadata":"deny"}`:                               "network.metadata",
		`"kubernetesAuth":{"kubeletCredential":"token"}`:              "kubernetesAuth.kubeletCredential",
		`"kubernetesAuth":{"kubeletCredential":"password"}`:           "kubernetesAuth.kubeletCredential",
	} {
		expect(t, body, asked(t, `{"properties":{`+body+`}}`), "InvalidParameter properties."+want)
	}
}

// The API has the same kinds of drift as the agent.
func TestKindsOfDrift(t *testing.T) {
	kinds := []string{}
	w, d := newWorld(t), Desired{DriftPolicies: map[string]string{}}
	for at := range settingsOfAPI(t) {
		if kind, is := strings.CutPrefix(at, "driftPolicies."); is {
			kinds = append(kinds, kind)
			d.DriftPolicies[kind] = "repair"
		}
	}
	w.put(d)
	_, problems := w.decide(Desired{DriftPolicies: map[string]string{"": "off"}})
	expect(t, "problems", len(problems), 1)
	_, list, _ := strings.Cut(problems[0].Message, "one of ")
	agents := strings.Split(list, ", ")
	slices.Sort(kinds)
	slices.Sort(agents)
	expect(t, "the kinds of the API, and those of the agent", kinds, agents)
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]string{
		"PT15M": "15m", "PT90S": "1m30s", "PT1H": "1h", "P1D": "24h", "P1DT1H1M1S": "25h1m1s",
		"PT0S": "0s", "PT120M": "2h", "P": "", "PT": "", "P1DT": "", "15m": "", "P1W": "", "P1Y": "",
		"PT1.5H": "", "pt1h": "", "-PT1H": "", "PT100000H": "", "": "",
	} {
		expect(t, text, duration(text).(string), want)
		if want != "" {
			d, _ := parseDuration(text)
			expect(t, "the time of "+text, d, must(time.ParseDuration(want)))
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
		shows(t, "the labels", label+" here", got["a"], got[InstallationLabel])
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
