package store

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// fullStatus returns the status that a cluster and an agent report of a node on which something
// differs.
func fullStatus(i int) flexnode.Status {
	s := benchStatus(i)
	at := *s.Report.LastConfigApplied
	kinds := []string{
		"SystemSupported", "DiskSpace", "ContainerdRunning", "KubeletRunning", "KubeletStable",
		"APIServerReachable", "CredentialValid", "VersionsCompatible", "NodeRegistered", "NodeReady",
		"LabelsApplied", "TaintsApplied", "HostAsConfigured", "StoreIntact",
	}
	for j, kind := range kinds {
		c := api.Condition{Type: kind, Status: "True", Reason: "AsExpected"}
		c.LastTransitionTime = at.Add(time.Duration(i*j) * time.Second)
		s.Report.Conditions = append(s.Report.Conditions, c)
	}
	s.Report.Components = &api.Components{
		Kubelet: "1.34.4", Containerd: "2.2.7", Runc: "1.3.6", CNI: "1.9.1", NPD: "1.34.0",
		Kernel: fmt.Sprintf("6.8.0-%d-generic", i%90), OS: "Ubuntu 24.04.3 LTS",
	}
	s.Report.Config = &api.Applied{Observed: s.Report.AppliedConfigVersion}
	s.Report.Drift = &api.Drift{Policy: "report", Count: 1, LastSeen: &at, Items: []api.DriftItem{
		{Name: "/etc/containerd/config.toml", Message: fmt.Sprintf("its mode is 06%02o", i%64)},
	}}
	return s
}

// A node whose agent reports all that there is takes little more than a kilobyte in the index of a
// replica, so that with what is around it (docs/explanation/performance.md) it stays below 2 KiB.
func TestFullStatusIsSmall(t *testing.T) {
	const nodes, most = 500, 1200
	p, total, status := newPacker(), 0, 0
	for i := range nodes {
		row, err := json.Marshal(benchNode(i))
		if err != nil {
			t.Fatal(err)
		}
		said, err := json.Marshal(fullStatus(i))
		if err != nil {
			t.Fatal(err)
		}
		packed, n := p.pack(said), benchNode(i)
		e := entry{
			key: benchKey(i), uid: n.UID, identity: n.Identity, node: string(p.pack(row)),
			status: string(packed),
		}
		total += e.size() + int(reflect.TypeOf(e).Size())
		status += len(packed)
	}
	t.Logf("%d bytes a node, of them %d of status", total/nodes, status/nodes)
	if total/nodes > most {
		t.Errorf("a node takes %d bytes, more than %d", total/nodes, most)
	}
}
