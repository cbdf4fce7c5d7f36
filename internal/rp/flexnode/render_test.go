package flexnode

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// goldens has the bundles from which the agent's own tests render nodes (internal/node).
const goldens = "../../../api/flexnode/v20260501preview/testdata"

// The bundles that the agent's tests read are rendered here.
func TestBundles(t *testing.T) {
	defaults := DefaultsLayer(object{
		"artifacts": object{"mirror": "https://mirror.example"},
		"azure":     object{"authorityHost": "https://login.example"},
	})
	facts := FactsLayer(someFacts(), cluster)
	principal := AzureAuth{
		Method: api.ServicePrincipal,
		ServicePrincipal: &ServicePrincipalAuth{ClientID: clientA, ClientTenant: tenant,
			SecretExpires: "2027-01-31"},
	}
	azure := KubernetesAuth{UseAzureAuth: true}
	secrets := Grants{ClientSecret: "a-secret", Token: "abcdef.0123456789abcdef"}
	for name, tt := range map[string]struct {
		desired Desired
		pod     string
		grants  Grants
	}{
		"token": {
			desired: Desired{NodeConfig: NodeConfig{
				MaxPods: 50, Labels: map[string]string{"environment": "prod"},
				Taints: []string{"edge=true:NoSchedule"},
			}},
			pod: "10.200.3.0/24", grants: Grants{Token: secrets.Token},
		},
		"service-principal": {
			desired: Desired{
				ContinuousMonitoring: true, AzureAuth: principal, KubernetesAuth: azure,
				Versions: Versions{Kubernetes: "1.34.4"},
			},
			grants: Grants{ClientSecret: secrets.ClientSecret},
		},
		"token-monitored": {
			desired: Desired{
				ContinuousMonitoring: true, AzureAuth: principal,
				DriftPolicies: map[string]string{"unit": "repair", "sysctl": "off"},
			},
			grants: secrets,
		},
		"managed-identity": {desired: Desired{
			AzureAuth: AzureAuth{
				Method:          api.ManagedIdentity,
				ManagedIdentity: &ManagedIdentityAuth{ClientID: clientB},
				Registries:      []string{"contoso.azurecr.io"},
			},
			KubernetesAuth: azure,
			NodeConfig: NodeConfig{Kubelet: Kubelet{
				KubeReserved: map[string]string{"cpu": "100m"}, ImageGCHighThreshold: new(90),
				Verbosity: new(4), NodeIP: "192.0.2.7",
			}},
		}},
		"arc": {desired: Desired{AzureAuth: AzureAuth{Method: api.Arc}, KubernetesAuth: azure}},
		"arc-onboarding": {
			desired: Desired{
				AzureAuth: AzureAuth{Method: api.Arc, Arc: &ArcAuth{
					AutoRoleAssignment: true,
					Onboarding:         &ServicePrincipalAuth{ClientID: clientA},
				}},
				KubernetesAuth: KubernetesAuth{UseAzureAuth: true, KubeletCredential: "token"},
			},
			grants: Grants{ClientSecret: secrets.ClientSecret},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := Node{ID: nodeID, Desired: complete(tt.desired)}
			versions, problems := chooser{want: tt.desired.Versions, server: "1.36.3"}.choose()
			n.Chosen = Chosen{Versions: versions, PodCIDR: tt.pod}
			parent := Parent{FactsLayer: facts, Defaults: defaults}
			own, wrong := n.wholeOwnLayer("", parent)
			expect(t, "the problems", append(problems, wrong...), nil)
			whole := must(Config(Revision{Own: encode(own)}, defaults, facts, tt.grants))
			got := append(must(json.MarshalIndent(object{
				"schemaVersion": config.SchemaVersion, "config": whole,
			}, "", "  ")), '\n')
			path := filepath.Join(goldens, name+".json")
			if *update {
				must(0, os.WriteFile(path, got, 0o644))
			}
			if diff := cmp.Diff(string(must(os.ReadFile(path))), string(got)); diff != "" {
				t.Errorf("the bundle is another (-want +got); make golden if that is meant:\n%s",
					diff)
			}
			expect(t, "the agent's problems", checkNode(n, own, parent), nil)
		})
	}
}

// A bundle names the resource, and its version, that its configuration is from.
func TestABundleSaysWhatItIsFrom(t *testing.T) {
	w := newWorld(t)
	w.put(Desired{})
	whole := must(Config(*w.last(), nil, w.parent.FactsLayer, Grants{Token: anyToken}))
	from := api.BundleResource{ID: nodeID, UID: "u-1", ConfigVersion: "1800000000", Epoch: 3}
	text := encode(Bundle(whole, from))
	read := must(config.Parse(text, anyHost()))
	expect(t, "what it is from", api.BundleResource(*read.Resource), from)
	bare := must(config.Canonical(encode(whole)))
	expect(t, "the document of the bundle", string(must(config.Canonical(text))), string(bare))
}

func TestFactsComeBackFromTheirLayer(t *testing.T) {
	for _, f := range []Facts{{}, someFacts(), {ServerURL: "https://x", Location: "y"}} {
		expect(t, "the DNS server", FactsLayer(f, cluster).DNSServiceIP(), f.DNSServiceIP)
	}
	_, bad := ReadLayer([]byte("{"))
	_, worse := Config(Revision{Own: []byte("{")}, nil, nil, Grants{})
	shows(t, "half a layer, half a revision is read", "false false", bad == nil, worse == nil)
}

// An Arc machine in another subscription is enrolled there.
func TestArcMachineInAnotherSubscription(t *testing.T) {
	w := newWorld(t)
	machine := "/subscriptions/" + subscription2 +
		"/resourceGroups/Arc/providers/Microsoft.HybridCompute/machines/M-1"
	w.put(Desired{
		ContinuousMonitoring: true, KubernetesAuth: KubernetesAuth{UseAzureAuth: true},
		AzureAuth: AzureAuth{Method: api.Arc, Arc: &ArcAuth{MachineResourceID: machine}},
	})
	c := parsed([]byte(w.config(w.last())))
	_, _, name := c.Azure.TargetCluster.ID()
	shows(t, "the machine and the cluster", subscription2+" Arc M-1 Factory "+cluster+" mirid:"+
		strings.ToLower(machine), c.Azure.SubscriptionID, c.Azure.Arc.ResourceGroup,
		c.Azure.Arc.MachineName, name, c.Azure.TargetCluster.ResourceID, w.node.Identity)
}

// Nodes and revisions contain no secret, whatever the request.
func TestSecretsAreNowhere(t *testing.T) {
	repeat(t, 300, func(g *rand.Rand, w *world) {
		for range 3 {
			w.put(randomDesired(g))
			expect(t, "it is rendered", w.node.Revision != 0, true)
			text := string(encode(w.node)) + string(must(w.history.Row()))
			expect(t, "it has a secret: "+text, strings.Contains(text, "-secret"), false)
		}
	})
}

// A new own layer equals the one that is read after it was stored.
func TestAnOwnLayerIsMadeAsItIsRead(t *testing.T) {
	repeat(t, 500, func(g *rand.Rand, _ *world) {
		n := Node{ID: nodeID, Desired: complete(withoutSecret(randomDesired(g)))}
		n.Chosen.Versions, n.Chosen.PodCIDR = n.Desired.Versions, pick(g, "", "10.244.7.0/24")
		own := ownLayer(n, pick(g, "", "10.244.0.0/16"))
		expect(t, "what is made", own, must(readObject(encode(own))))
		expect(t, "its text", string(appendValue(nil, own)), string(encode(own)))
	})
	odd := object{"a": []any{}, "b": []any{"<&>", `"\\`, "\x00\t", "\u00e9\u2028\xff", nil, true,
		json.Number("1.50")}, "<": object{}, "": ""}
	expect(t, "an odd text", string(appendValue(nil, odd)), string(encode(odd)))
}

// Checks at the same time write to nothing that they share.
func TestChecksAtOnce(t *testing.T) {
	w := newWorld(t)
	n := Node{ID: nodeID, Desired: complete(asPrincipal(clientA, ""))}
	n.Chosen.Versions, _ = chooser{server: "1.35.4"}.choose()
	parent := Parent{FactsLayer: w.parent.FactsLayer, Defaults: DefaultsLayer(nil)}
	var checks sync.WaitGroup
	for range 4 {
		checks.Go(func() {
			for range 2000 {
				n.check(ownLayer(n, ""), parent)
			}
		})
	}
	checks.Wait()
}

// A new revision has the content that its stored form is rendered to.
func TestContentOfARevision(t *testing.T) {
	w := newWorld(t)
	repeat(t, 200, func(g *rand.Rand, _ *world) {
		if r := w.put(randomDesired(g)).Revision; r != nil {
			expect(t, "the content", string(r.Content), string(Content(w.whole(w.last(), Grants{}))))
		}
	})
}

// Only a present list sets the direct networks.
func TestDirectNetworksOfARevision(t *testing.T) {
	for own, want := range map[string]bool{
		"": false, "{": false, "[]": false, "{}": false, `{"cni":null}`: false, `{"cni":{}}`: false,
		`{"agent":{"nonMasqueradeCIDRs":["x"]},"cni":{"podCIDR":"y"},"npd":{}}`: false,
		`{"cni":{"nonMasqueradeCIDRs":null,"version":"1.2.3"}}`:                 false,
		`{"cni":{"nonMasqueradeCIDRs":[],"version":"1.2.3"}}`:                   true,
		`{"azure":{},"cni":{"a":{},"nonMasqueradeCIDRs":["x"]},"npd":{}}`:       true,
	} {
		r := Revision{Own: json.RawMessage(own)}
		expect(t, own, r.hasDirectNetworks(), want)
	}
}

// typical returns a node as an owner writes it.
func typical() Desired {
	d := asPrincipal(clientA, "a-secret")
	d.Versions.Kubernetes = "1.35.4"
	d.NodeConfig = NodeConfig{
		MaxPods: 50,
		Labels: map[string]string{
			"environment": "production", "site": "factory-17",
			"topology.kubernetes.io/zone": "hall-3", "team": "robotics",
		},
		Taints: []string{"edge=true:NoSchedule"},
		Kubelet: Kubelet{
			KubeReserved: map[string]string{"cpu": "100m", "memory": "1Gi"},
			EvictionHard: map[string]string{"memory.available": "200Mi"},
			NodeIP:       "192.0.2.7", ImageGCHighThreshold: new(85), ImageGCLowThreshold: new(80),
		},
	}
	return d
}

// The ten kept revisions of a typical node take, with its other rows, less than 8 KiB.
func TestTenRevisionsAreSmall(t *testing.T) {
	const most = 8 << 10
	w := newWorld(t)
	w.pool("10.200.0.0/16", 24)
	for i := range Kept {
		w.now = w.now.Add(time.Duration(17*i) * time.Hour)
		d := typical()
		d.NodeConfig.Labels["release"] = ContentID([]byte{byte(i)}) // does not compress
		d.NodeConfig.MaxPods += i
		w.moves(fmt.Sprintf("https://factory-%d.example:6443", i), "1.35.4")
		w.put(d)
	}
	expect(t, "revisions", len(w.history.revisions), Kept)
	now := w.now.UTC()
	status := Status{
		Report: api.Report{
			AppliedConfigVersion: "1800000000", LastConfigApplied: &now, AgentVersion: "v1.2.3",
		},
		Ready: &api.Condition{
			Type: Ready, Status: "True", LastTransitionTime: now, Reason: "KubeletReady",
			Message: "kubelet is posting ready status",
		},
	}
	for i := range 10 {
		status.Report.Conditions = append(status.Report.Conditions, api.Condition{
			Type: fmt.Sprintf("Condition%d", i), Status: "True", LastTransitionTime: now,
			Reason: "AsConfigured", Message: "The machine is as it is configured to be.",
		})
	}
	encoder := must(zstd.NewWriter(nil, zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(64<<10), zstd.WithLowerEncoderMem(true)))
	history := must(w.history.Row())
	packed := len(encoder.EncodeAll(history, nil))
	node, stat := len(must(json.Marshal(w.node))), len(must(json.Marshal(status)))
	t.Logf("history %d (%d unpacked), node %d, status %d", packed, len(history), node, stat)
	if total := packed + node + stat; total > most {
		t.Errorf("a node takes %d bytes, more than %d", total, most)
	}
}

func BenchmarkDecide(b *testing.B) {
	w := newWorld(b)
	w.defaults(object{"artifacts": object{"mirror": "https://mirror.example"}})
	w.put(typical())
	last, secret := w.last(), Secret{Version: w.version, Known: true}
	for name, maxPods := range map[string]int{"changed": 60, "equal": 50} {
		p := Put{ID: nodeID, Desired: withoutSecret(typical()), At: w.now, By: "ops"}
		p.Desired.NodeConfig.MaxPods = maxPods
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d, problems := Decide(p, w.node, last, nil, w.parent, secret)
				if d.Changed != (name == "changed") {
					b.Fatal(problems)
				}
			}
		})
	}
}
