package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// fullStatus is what a cluster and an agent say of a node on which something differs.
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

// What the nodes of a site have in common is learned from some of them, so that the others take
// less: also those that were there before, and those that come later.
func TestRowsAreLearned(t *testing.T) {
	m := storetest.NewMemory()
	s := New(m)
	const nodes = 200
	fill := func() {
		update(t, s, func(v *View) error {
			return s.Clusters.Set(v, "12345678-90ab-cdef-1234-567890abcdef/plants/north-00",
				flexnode.Cluster{})
		})
		for i := range nodes {
			key := benchKey(20 * i)
			update(t, s, func(v *View) error {
				return errors.Join(s.Nodes.Set(v, key, benchNode(20*i)),
					s.Status.Set(v, key, benchStatus(20*i)))
			})
		}
	}
	size := func(x *Index) (bytes int) {
		x.snapshot.Load().nodes.Ascend(func(i item[*entry]) bool {
			bytes += len(i.value.text)
			return true
		})
		return bytes / nodes
	}
	x := NewIndex(s)
	if err := x.Load(t.Context()); err != nil { // there is nothing to learn from
		t.Fatal(err)
	}
	fill()
	if err := x.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	compare(t, s, x)
	learned := NewIndex(s)
	if err := learned.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	compare(t, s, learned)
	t.Logf("%d bytes of text a node, %d with what is learned", size(x), size(learned))
	if size(learned) > size(x)*4/5 {
		t.Errorf("%d bytes of text a node, %d with what is learned", size(x), size(learned))
	}
}

// A node whose agent reports all that there is takes no more than a kilobyte of text in the memory
// of a replica, so that with what is around it (docs/performance.md) it stays below 1.5 KiB.
func TestFullStatusIsSmall(t *testing.T) {
	const nodes, most = 500, 1024
	p, total, status := newPacker(nil), 0, 0
	for i := range nodes {
		row, err := json.Marshal(benchNode(i))
		if err != nil {
			t.Fatal(err)
		}
		said, err := json.Marshal(fullStatus(i))
		if err != nil {
			t.Fatal(err)
		}
		var e entry
		packed := p.pack(said)
		_, own := cutIdentity(benchNode(i).Identity)
		e.join(benchKey(i), own, benchNode(i).UID, string(p.pack(row)), string(packed))
		total += len(e.text) + int(unsafe.Sizeof(e))
		status += len(packed)
	}
	t.Logf("%d bytes a node, of them %d of status", total/nodes, status/nodes)
	if total/nodes > most {
		t.Errorf("a node takes %d bytes, more than %d", total/nodes, most)
	}
}
