package store

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

func TestPackedRowsAreSmallAndWhole(t *testing.T) {
	when := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	row, err := json.Marshal(Node{
		ID:      "/subscriptions/12345678-90ab-cdef-1234-567890abcdef/resourceGroups/plants/providers/Microsoft.ContainerService/managedClusters/north/flexNodeConfig/press-17",
		Desired: api.Desired{AzureAuth: api.AzureAuth{Method: api.Arc, Arc: &api.ArcAuth{}}, KubernetesAuth: api.KubernetesAuth{UseAzureAuth: true}, NodeConfig: api.NodeConfig{MaxPods: 30, Labels: map[string]string{"line": "7"}}},
		Version: "1777636800", Resolved: Resolved{Facts: "fedcba9876543210fedcba98", Versions: api.Versions{Kubernetes: "1.34.4", Containerd: "2.2.1", Runc: "1.3.4", CNI: "1.9.1", NPD: "1.34.0"}},
		SystemData: api.SystemData{CreatedBy: "0f0f0f0f-1234-5678-9abc-def012345678", CreatedByType: "Application", CreatedAt: when, LastModifiedBy: "0f0f0f0f-1234-5678-9abc-def012345678", LastModifiedByType: "Application", LastModifiedAt: when},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := newPacker()
	packed := p.pack(row)
	if len(packed) > len(row)/2 {
		t.Errorf("%d bytes are packed into %d", len(row), len(packed))
	}
	got, err := p.unpack(packed)
	if err != nil || !bytes.Equal(got, row) {
		t.Errorf("%s, %v", got, err)
	}
	t.Logf("%d bytes are packed into %d", len(row), len(packed))
}
