package rp

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// TestDump writes what this form of the provider stores, and what it answers then, for the tests of
// the migration (store/testdata/v1). It does so with -update only.
func TestDump(t *testing.T) {
	w := newWorld(t)
	w.server.Defaults = object{
		"artifacts": object{"mirror": "https://mirror.example"},
		"azure":     object{"authorityHost": "https://login.example"},
		"node":      object{"kubelet": object{"verbosity": 3.0}},
	}
	w.register(`"podCidr":"10.200.0.0/16","nodeCidrMask":24`)
	dumpNodes(w)
	dumpOthers(w)
	w.settled()
	if !*update {
		return
	}
	dir := filepath.Join("store", "testdata", "v1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	save(t, filepath.Join(dir, "rows.json"), dumpRows(w))
	save(t, filepath.Join(dir, "answers.json"), dumpAnswers(w))
	save(t, filepath.Join(dir, "keys.json"), w.server.Keys)
	save(t, filepath.Join(dir, "settings.json"), object{
		"defaults": w.server.Defaults, "tenantId": w.server.TenantID,
	})
}

// dumpNodes makes nodes of every kind: of each method, with a URL, one that was used, reported,
// deleted, in another casing.
func dumpNodes(w *world) {
	const labels = `"nodeConfig":{"maxPods":50,"labels":{"a":"b.c"},"taints":["e=t:NoSchedule"]}`
	w.must(201, "PUT", nodeURL("Principal")+"&configUrl=true", withPrincipal)
	w.must(201, "PUT", nodeURL("token")+"&configUrl=true", `{"properties":{`+labels+`}}`)
	w.must(201, "PUT", strings.ReplaceAll(nodeURL("Cased"), "Factory", "FACTORY"),
		`{"properties":{"nodeConfig":{"kubelet":{"verbosity":4,"nodeIP":"192.0.2.7",`+
			`"kubeReserved":{"cpu":"100m"},"imageGCHighThreshold":90}}}}`)
	w.must(201, "PUT", nodeURL("arc"), `{"properties":{"continuousMonitoring":true,"azureAuth":{`+
		`"method":"arc"},"kubernetesAuth":{"useAzureAuth":true}}}`)
	w.must(201, "PUT", nodeURL("identity"), `{"properties":{"azureAuth":{"method":"managedIdentity",`+
		`"managedIdentity":{"clientId":"bbbbbbbb-0000-0000-0000-000000000002"}},`+
		`"kubernetesAuth":{"useAzureAuth":true},"versions":{"containerd":"2.1.0"}}}`)
	w.clock.pass(time.Hour)
	w.must(200, "PUT", nodeURL("arc"), `{"properties":{"continuousMonitoring":true,"azureAuth":{`+
		`"method":"arc","arc":{"machineResourceId":"/subscriptions/`+subscription+
		`/resourceGroups/Other/providers/Microsoft.HybridCompute/machines/Box"}},`+
		`"kubernetesAuth":{"useAzureAuth":true}}}`)
	w.must(204, "POST", nodeURL("arc", "/reportStatus"), `{"appliedConfigVersion":"1","agentVersion":`+
		`"1.2.3","conditions":[{"type":"Applied","status":"True"}]}`)
	w.must(201, "PUT", nodeURL("gone"), withPrincipal)
	w.must(200, "DELETE", nodeURL("gone"), "")
	w.must(201, "PUT", nodeURL("going"), withPrincipal)
}

// dumpOthers makes what is left: nodes whose cluster was never reached, one that cannot be
// resolved, one that is being deleted, and what a registration leaves that was deleted.
func dumpOthers(w *world) {
	other := strings.ReplaceAll(cluster, "Factory", "Harbour")
	w.cluster.down.Store(true)
	w.must(201, "PUT", other+versionQuery, `{"location":"northeurope","properties":{}}`)
	w.must(201, "PUT", other+"/flexNodeConfig/early"+versionQuery+"&configUrl=true",
		`{"properties":{}}`)
	w.must(200, "PUT", "/subscriptions/"+strings.Repeat("2", 8)+subscription[8:]+"?api-version=2.0",
		`{"state":"Warned","properties":{"quotaId":"x"}}`)
	gone := strings.ReplaceAll(cluster, "Factory", "Closed")
	w.must(201, "PUT", gone+versionQuery, `{"location":"northeurope","properties":{}}`)
	w.must(201, "PUT", gone+"/flexNodeConfig/lost"+versionQuery+"&configUrl=true", `{"properties":{}}`)
	w.must(200, "DELETE", gone+versionQuery, "")
	w.cluster.down.Store(false)
	ctx := w.t.Context()
	node, err := w.server.Store.Nodes.Get(ctx, clusterKey+"/going")
	if err != nil {
		w.t.Fatal(err)
	}
	next := node.Value
	next.State = api.Deleting
	failed := node.Value
	failed.ID, failed.State = strings.ReplaceAll(failed.ID, "going", "failed"), api.Failed
	failed.Resolved = store.Resolved{}
	failed.Desired = api.Desired{Versions: api.Versions{Kubernetes: "1.99.0"}}
	txn := w.server.Store.Txn()
	w.server.Store.Nodes.Put(txn, node, next)
	w.server.Store.Nodes.Set(txn, clusterKey+"/failed", failed)
	w.server.Store.Status.Set(txn, clusterKey+"/failed", store.Status{Seen: 1, Report: api.Report{
		Conditions: []api.Condition{{Type: "Resolved", Status: "False", Reason: "VersionSkew",
			Message: "The Kubernetes version '1.99.0' is newer."}}}})
	if _, err := txn.Commit(ctx); err != nil {
		w.t.Fatal(err)
	}
}

func dumpRows(w *world) map[string]json.RawMessage {
	const root = "/flexnode/v1/"
	got, err := w.server.Store.Client().Get(w.t.Context(), root, clientv3.WithPrefix())
	if err != nil {
		w.t.Fatal(err)
	}
	rows := map[string]json.RawMessage{root + "schema": json.RawMessage("1")}
	for _, kv := range got.Kvs {
		if len(kv.Value) > 0 {
			rows[string(kv.Key)] = kv.Value
		}
	}
	return rows
}

// dumpAnswers is what GET of each node answers, and what the URLs that are live hand out, by key.
func dumpAnswers(w *world) map[string]json.RawMessage {
	answers := map[string]json.RawMessage{}
	nodes, err := w.server.Store.Nodes.List(w.t.Context(), "")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Value.State == api.Deleting {
			continue
		}
		_, text := w.must(200, "GET", n.Value.ID+versionQuery, "")
		answers[n.Key] = json.RawMessage(text)
	}
	return answers
}

func save(t *testing.T, path string, value any) {
	t.Helper()
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
