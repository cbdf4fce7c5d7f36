package store

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// benchNode returns a typical node of an owner: no two are alike.
func benchNode(i int) flexnode.Node {
	at := time.Date(2026, 11, 21, 10, 0, i%3600, 0, time.UTC)
	client := fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012d", i%20)
	return flexnode.Node{
		ID: fmt.Sprintf("/subscriptions/12345678-90ab-cdef-1234-567890abcdef/resourceGroups/plants"+
			"/providers/Microsoft.ContainerService/managedClusters/north-%02d/flexNodeConfig/"+
			"edge-node-%06d", i%20, i),
		UID:      fmt.Sprintf("%08x-4b5a-4968-8778-%012x", uint32(i*2654435761), i*7919),
		Revision: 1777636800 + int64(i), Assigned: 1777636800 + int64(i),
		Desired: flexnode.Desired{
			ContinuousMonitoring: true,
			AzureAuth: flexnode.AzureAuth{Method: api.ServicePrincipal,
				ServicePrincipal: &flexnode.ServicePrincipalAuth{ClientID: client}},
			NodeConfig: flexnode.NodeConfig{MaxPods: 30,
				Labels: map[string]string{"line": fmt.Sprint(i % 50)}},
		},
		Facts:    fmt.Sprintf("%032x", i%20+1),
		Identity: "app:11111111-1111-1111-1111-111111111111/" + client,
		Chosen: flexnode.Chosen{Versions: flexnode.Versions{Kubernetes: "1.34.4", Containerd: "2.2.1",
			Runc: "1.3.4", CNI: "1.9.1", NPD: "1.34.0"}},
		SystemData: api.SystemData{CreatedBy: client, CreatedByType: "Application", CreatedAt: at,
			LastModifiedBy: client, LastModifiedByType: "Application", LastModifiedAt: at},
	}
}

// benchStatus returns a full report of a node with differences, and the provider's own findings.
func benchStatus(i int) flexnode.Status {
	at := time.Date(2026, 11, 21, 10, i%60, i%59, 0, time.UTC)
	version := fmt.Sprint(1777636800 + i)
	r := api.Report{
		AppliedConfigVersion: version, LastConfigApplied: &at, AgentVersion: "v1.4.0",
		Components: &api.Components{Kubelet: "1.34.4", Containerd: "2.2.7", Runc: "1.3.6", CNI: "1.9.1",
			NPD: "1.34.0", Kernel: fmt.Sprintf("6.8.0-%d-generic", i%90), OS: "Ubuntu 24.04.3 LTS"},
		Config: &api.Applied{Observed: version},
		Drift: &api.Drift{Policy: "report", Count: 1, LastSeen: &at, Items: []api.DriftItem{
			{Name: "/etc/containerd/config.toml", Message: fmt.Sprintf("its mode is 06%02o", i%64)}}},
	}
	r.Conditions = trueOnes(`ConfigurationApplied CredentialValid NodeReady ServicesRunning
		NetworkReady NoDrift SystemSupported DiskSpace ContainerdRunning KubeletRunning KubeletStable
		APIServerReachable VersionsCompatible NodeRegistered LabelsApplied TaintsApplied
		HostAsConfigured StoreIntact`, at)
	for n := range r.Conditions {
		r.Conditions[n].LastTransitionTime = at.Add(time.Duration(n*i%900) * time.Second)
	}
	return flexnode.Status{Report: r, Ready: &api.Condition{Type: "Ready", Status: "True",
		LastTransitionTime: at, Reason: "KubeletReady"}}
}

// A node with a full report takes little more than a kilobyte in the index of a replica, so that
// with its surroundings (docs/explanation/performance.md) it stays below 2 KiB.
func TestFullStatusIsSmall(t *testing.T) {
	const nodes, most = 500, 1200
	p, total, status := dictionary(), 0, 0
	for i := range nodes {
		row := must(json.Marshal(benchNode(i)))
		said := must(json.Marshal(benchStatus(i)))
		packed, n := p.Encode(nil, said), benchNode(i)
		if got, err := p.Decode(nil, packed); err != nil || string(got) != string(said) {
			t.Fatalf("%s is unpacked: %v", got, err)
		}
		key := fmt.Sprintf("%s/plants/north-%02d/edge-node-%06d",
			"12345678-90ab-cdef-1234-567890abcdef", i%20, i)
		e := entry{key: key, uid: n.UID, identity: n.Identity, node: string(p.Encode(nil, row)),
			status: string(packed)}
		total += e.size() + int(reflect.TypeOf(e).Size())
		status += len(packed)
	}
	t.Logf("%d bytes a node, of them %d of status", total/nodes, status/nodes)
	if total/nodes > most {
		t.Errorf("a node takes %d bytes, more than %d", total/nodes, most)
	}
}

var rewrite = flag.Bool("update", false, "write likely.jsonl")

// The rows in the dictionary have their present form.
func TestLikelyRows(t *testing.T) {
	at := time.Date(2026, 11, 21, 10, 12, 40, 0, time.UTC)
	var want []byte
	for _, row := range append(sampleNodes(at), sampleStatus(at)) {
		data := must(json.Marshal(row))
		want = append(append(want, data...), '\n')
	}
	if *rewrite {
		must(0, os.WriteFile("likely.jsonl", want, 0o644))
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
		Chosen: flexnode.Chosen{PodCIDR: "10.244.0.0/24", Versions: flexnode.Versions{
			Kubernetes: "1.35.4", Containerd: "2.2.1", Runc: "1.3.4", CNI: "1.9.1", NPD: "1.34.0"}},
		State: "Creating", Credential: "cluster/" + sampleUUID,
		SystemData: api.SystemData{CreatedBy: sampleUUID, CreatedByType: "User", CreatedAt: at,
			LastModifiedBy: sampleUUID, LastModifiedByType: "Application", LastModifiedAt: at},
	}
	n.Desired.ContinuousMonitoring = true
	n.Desired.KubernetesAuth.UseAzureAuth = true
	n.Desired.Versions = n.Chosen.Versions
	n.Desired.NodeConfig = flexnode.NodeConfig{MaxPods: 50,
		Labels: map[string]string{"environment": "prod", "site": "factory"},
		Taints: []string{"edge=true:NoSchedule"}}
	arc, managed, principal := n, n, n
	arc.Desired.AzureAuth = flexnode.AzureAuth{Method: api.Arc, Arc: &flexnode.ArcAuth{}}
	arc.Identity = "mirid:" + sampleGroup + "/providers/microsoft.hybridcompute/machines/edge-node-1"
	managed.Desired.AzureAuth = flexnode.AzureAuth{Method: api.ManagedIdentity,
		ManagedIdentity: &flexnode.ManagedIdentityAuth{ClientID: sampleUUID}}
	managed.Identity, managed.State = "oid:"+sampleUUID, ""
	principal.Desired.AzureAuth = flexnode.AzureAuth{Method: api.ServicePrincipal,
		ServicePrincipal: &flexnode.ServicePrincipalAuth{ClientID: sampleUUID, ClientTenant: sampleUUID}}
	principal.Identity, principal.Credential = "app:"+sampleUUID+"/"+sampleUUID, ""
	n.Desired.AzureAuth.Method = api.BootstrapToken
	return []any{n, arc, managed, principal}
}

// trueOnes returns conditions of some types.
func trueOnes(types string, at time.Time) (list []api.Condition) {
	for _, is := range strings.Fields(types) {
		list = append(list, api.Condition{Type: is, Status: "True", LastTransitionTime: at, Reason: is})
	}
	return list
}

func sampleStatus(at time.Time) any {
	return flexnode.Status{
		Report: api.Report{
			AppliedConfigVersion: "1795255960", LastConfigApplied: &at, AgentVersion: "v1.0.0",
			Components: &api.Components{Kubelet: "1.35.4", Containerd: "2.2.1", Runc: "1.3.4", CNI: "1.9.1",
				NPD: "1.34.0", Kernel: "6.8.0-60-generic", OS: "Ubuntu 24.04.2 LTS"},
			Config: &api.Applied{Observed: "1795255960", Failed: &api.FailedConfig{Version: "1795255960",
				Reason: "NodeNotReady", Message: "the Node was not Ready", At: &at}},
			Drift: &api.Drift{Policy: "report", Count: 1, LastSeen: &at, Items: []api.DriftItem{
				{Name: "/etc/systemd/system/kubelet.service", Message: "it is not as configured"}}},
			Conditions: trueOnes(`Applied KubeletRunning ContainerdRunning APIServerReachable
				CredentialValid NodeRegistered LeaseRenewed NodeReady RunsAsConfigured LabelsApplied
				TaintsApplied HostAsConfigured ConfigurationAccepted ServicesReachable`, at), // the agent's
		},
		Ready: &api.Condition{Type: "Ready", Status: "True", LastTransitionTime: at,
			Reason: "KubeletReady"},
	}
}
