package store

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

var rewrite = flag.Bool("update", false, "write likely.jsonl")

// The dictionary has rows as they are written now.
func TestLikelyRows(t *testing.T) {
	at := time.Date(2026, 11, 21, 10, 12, 40, 0, time.UTC)
	var want []byte
	for _, row := range append(sampleNodes(at), sampleStatus(at)) {
		data, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		want = append(append(want, data...), '\n')
	}
	if *rewrite {
		if err := os.WriteFile("likely.jsonl", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(want, likely) {
		t.Error("likely.jsonl has other rows; run `make golden`")
	}
}

const (
	sampleGroup = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/group"
	sampleUUID  = "aaaaaaaa-0000-0000-0000-000000000001"
)

func sampleNodes(at time.Time) []any {
	n := flexnode.Node{
		ID: sampleGroup + "/providers/Microsoft.ContainerService/managedClusters/cluster" +
			"/flexNodeConfig/edge-node-1",
		UID:      "bbbbbbbb-1111-4222-8333-444444444444",
		Revision: 1795255960, Assigned: 1795255960, Facts: "0123456789abcdef0123456789abcdef",
		Chosen: flexnode.Chosen{PodCIDR: "10.244.0.0/24", Versions: api.Versions{
			Kubernetes: "1.35.4", Containerd: "2.2.1", Runc: "1.3.4", CNI: "1.9.1", NPD: "1.34.0",
		}},
		State: "Creating", Credential: "cluster/" + sampleUUID,
		SystemData: api.SystemData{
			CreatedBy: sampleUUID, CreatedByType: "User", CreatedAt: at,
			LastModifiedBy: sampleUUID, LastModifiedByType: "Application", LastModifiedAt: at,
		},
	}
	n.Desired.ContinuousMonitoring = true
	n.Desired.KubernetesAuth.UseAzureAuth = true
	n.Desired.Versions = n.Chosen.Versions
	n.Desired.NodeConfig = api.NodeConfig{
		MaxPods: 50, Labels: map[string]string{"environment": "prod", "site": "factory"},
		Taints: []string{"edge=true:NoSchedule"},
	}
	arc, managed, principal := n, n, n
	arc.Desired.AzureAuth = api.AzureAuth{Method: api.Arc, Arc: &api.ArcAuth{}}
	arc.Identity = "mirid:" + sampleGroup +
		"/providers/microsoft.hybridcompute/machines/edge-node-1"
	managed.Desired.AzureAuth = api.AzureAuth{
		Method:          api.ManagedIdentity,
		ManagedIdentity: &api.ManagedIdentityAuth{ClientID: sampleUUID},
	}
	managed.Identity, managed.State = "oid:"+sampleUUID, ""
	principal.Desired.AzureAuth = api.AzureAuth{
		Method:           api.ServicePrincipal,
		ServicePrincipal: &api.ServicePrincipalAuth{ClientID: sampleUUID, ClientTenant: sampleUUID},
	}
	principal.Identity, principal.Credential = "app:"+sampleUUID+"/"+sampleUUID, ""
	n.Desired.AzureAuth.Method = api.BootstrapToken
	return []any{n, arc, managed, principal}
}

// sampleConditions are those of the agent (internal/health).
func sampleConditions(at time.Time) []api.Condition {
	var list []api.Condition
	for _, kind := range []string{
		"Applied", "KubeletRunning", "ContainerdRunning", "APIServerReachable", "CredentialValid",
		"NodeRegistered", "LeaseRenewed", "NodeReady", "RunsAsConfigured", "LabelsApplied",
		"TaintsApplied", "HostAsConfigured", "ConfigurationAccepted", "ServicesReachable",
	} {
		list = append(list, api.Condition{
			Type: kind, Status: "True", LastTransitionTime: at, Reason: kind,
		})
	}
	return list
}

func sampleStatus(at time.Time) any {
	return flexnode.Status{
		Report: api.Report{
			AppliedConfigVersion: "1795255960", LastConfigApplied: &at, AgentVersion: "v1.0.0",
			Components: &api.Components{
				Kubelet: "1.35.4", Containerd: "2.2.1", Runc: "1.3.4", CNI: "1.9.1", NPD: "1.34.0",
				Kernel: "6.8.0-60-generic", OS: "Ubuntu 24.04.2 LTS",
			},
			Config: &api.Applied{Observed: "1795255960", Failed: &api.FailedConfig{
				Version: "1795255960", Reason: "NodeNotReady", Message: "the Node was not Ready",
				At: &at,
			}},
			Drift: &api.Drift{Policy: "report", Count: 1, LastSeen: &at, Items: []api.DriftItem{
				{Name: "/etc/systemd/system/kubelet.service", Message: "it is not as configured"},
			}},
			Conditions: sampleConditions(at),
		},
		Ready: &api.Condition{
			Type: "Ready", Status: "True", LastTransitionTime: at, Reason: "KubeletReady",
		},
	}
}
