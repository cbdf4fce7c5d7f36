package flexnode

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// typical is a node as an owner writes it.
func typical() api.Desired {
	return api.Desired{
		ContinuousMonitoring: true,
		AzureAuth: api.AzureAuth{
			Method: api.ServicePrincipal,
			ServicePrincipal: &api.ServicePrincipalAuth{
				ClientID: clientA, ClientSecret: "a-secret", ClientTenant: tenant,
			},
		},
		Versions: api.Versions{Kubernetes: "1.35.4"},
		NodeConfig: api.NodeConfig{
			MaxPods: 50,
			Labels: map[string]string{
				"environment": "production", "site": "factory-17",
				"topology.kubernetes.io/zone": "hall-3", "team": "robotics",
			},
			Taints: []string{"edge=true:NoSchedule"},
			Kubelet: api.Kubelet{
				KubeReserved: map[string]string{"cpu": "100m", "memory": "1Gi"},
				EvictionHard: map[string]string{"memory.available": "200Mi"},
				NodeIP:       "192.0.2.7", ImageGCHighThreshold: 85, ImageGCLowThreshold: 80,
			},
		},
	}
}

// The ten revisions that are kept of a typical node take, with its other rows, less than 8 KiB.
func TestTenRevisionsAreSmall(t *testing.T) {
	const most = 8 << 10
	w := newWorld(t)
	w.parent.Cluster.Properties.PodCIDR, w.parent.Cluster.Properties.NodeCIDRMask =
		"10.200.0.0/16", 24
	for i := range Kept {
		w.now = w.now.Add(time.Duration(17*i) * time.Hour)
		d := typical()
		d.NodeConfig.Labels["release"] = ContentID([]byte{byte(i)}) // what does not pack
		d.NodeConfig.MaxPods += i
		f := someFacts()
		f.ServerURL = fmt.Sprintf("https://factory-%d.example:6443", i)
		w.reach(f, "1.35.4")
		w.put(d)
	}
	if n := len(w.history.revisions); n != Kept {
		t.Fatalf("%d revisions", n)
	}
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
	d := withoutSecret(typical())
	p := Put{ID: nodeID, Desired: d, At: w.now, By: "ops"}
	last, secret := w.last(), Secret{Version: w.version, Known: true}
	b.Run("changed", func(b *testing.B) {
		b.ReportAllocs()
		p := p
		p.Desired.NodeConfig.MaxPods = 60
		for b.Loop() {
			if d, problems := Decide(p, w.node, last, nil, w.parent, secret); !d.Changed {
				b.Fatal(problems)
			}
		}
	})
	b.Run("equal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if d, problems := Decide(p, w.node, last, nil, w.parent, secret); d.Changed {
				b.Fatal(problems)
			}
		}
	})
}
