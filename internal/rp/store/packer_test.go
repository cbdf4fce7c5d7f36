package store

import (
	"encoding/json"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

func TestPackedRowsAreSmallAndWhole(t *testing.T) {
	when := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	n := flexnode.Node{
		ID: "/subscriptions/12345678-90ab-cdef-1234-567890abcdef/resourceGroups/plants/providers/" +
			"Microsoft.ContainerService/managedClusters/north/flexNodeConfig/press-17",
		UID: "0f1e2d3c-4b5a-4968-8778-695a4b3c2d1e",
		Desired: api.Desired{
			AzureAuth:      api.AzureAuth{Method: api.Arc, Arc: &api.ArcAuth{}},
			KubernetesAuth: api.KubernetesAuth{UseAzureAuth: true},
			NodeConfig:     api.NodeConfig{MaxPods: 30, Labels: map[string]string{"line": "7"}},
		},
		Revision: 1777636800, Assigned: 1777636800, Facts: "fedcba9876543210fedcba98",
		Chosen: flexnode.Chosen{Versions: api.Versions{
			Kubernetes: "1.34.4", Containerd: "2.2.1", Runc: "1.3.4", CNI: "1.9.1", NPD: "1.34.0",
		}},
		SystemData: api.SystemData{
			CreatedBy: "0f0f0f0f-1234-5678-9abc-def012345678", CreatedByType: "Application",
			CreatedAt: when, LastModifiedBy: "0f0f0f0f-1234-5678-9abc-def012345678",
			LastModifiedByType: "Application", LastModifiedAt: when,
		},
	}
	row, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	p := newPacker()
	packed := p.pack(row)
	if len(packed) > len(row)/2 {
		t.Errorf("%d bytes are packed into %d", len(row), len(packed))
	}
	got, err := p.unpack(string(packed))
	if err != nil || string(got) != string(row) {
		t.Errorf("%s, %v", got, err)
	}
	t.Logf("%d bytes are packed into %d", len(row), len(packed))
}
