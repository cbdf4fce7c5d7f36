package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/prepare"
	"github.com/Azure/AKSFlexNode/internal/prepare/preparetest"
)

// The command shows the changes and asks; exit codes and JSON report missing parts.
func TestClusterPrepare(t *testing.T) {
	s := preparetest.New(t)
	// wants runs a command, and checks its exit code, the writes so far (-1: any), and its output.
	wants := func(stdin, args string, code, writes int, texts ...string) string {
		t.Helper()
		var out bytes.Buffer
		root := newRoot()
		root.SetArgs(append([]string{"cluster", "--kubeconfig", s.Kubeconfig}, strings.Fields(args)...))
		root.SetIn(strings.NewReader(stdin))
		root.SetOut(&out)
		root.SetErr(&out)
		err := root.ExecuteContext(t.Context())
		if err != nil {
			out.WriteString(err.Error())
		}
		for _, text := range texts {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%s does not say %q:\n%s", args, text, out.String())
			}
		}
		if exitCode(err) != code || writes >= 0 && s.Writes != writes {
			t.Errorf("%s: exit code %d, %d writes:\n%s", args, exitCode(err), s.Writes, out.String())
		}
		return out.String()
	}
	wants("", "prepare --dry-run", 2, 0, "create     DaemonSet kube-system/aks-flex-node-kube-proxy",
		"(the cluster's operator)", "PodRoutes")
	wants("no\n", "prepare --server https://api.example", 1, 0, "? [y/N]", "nothing was changed")
	wants("", "prepare --server https://api.example -y", 2, -1, "changes made", "missing   ClusterDNS")
	all := s.Writes
	s.Put("/api/v1/namespaces/kube-system/services/kube-dns", `{"kind": "Service",
		"metadata": {"name": "kube-dns"}, "spec": {"clusterIP": "10.0.0.10"}}`)
	s.Put("/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/a", `{
		"kind": "EndpointSlice", "metadata": {"name": "a",
		"labels": {"kubernetes.io/service-name": "kube-dns"}},
		"endpoints": [{"addresses": ["::1"]}]}`)
	again := wants("", "prepare --server https://api.example -o json", 0, all, `"unchanged"`)
	var r prepare.Report
	if err := json.Unmarshal([]byte(again), &r); err != nil || r.Version != "1.36.3" ||
		len(r.Checks) < 8 || len(r.Changes) != all {
		t.Errorf("%v: %+v", err, r)
	}
	wants("", "unprepare --dry-run", 2, all, "delete     DaemonSet")
	wants("y\n", "unprepare", 0, 2*all-1, "changes made") // all but the ConfigMap
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1") // as in the provider's own pod
	wants("", "prepare --kubeconfig=", 1, 2*all-1, "cannot use the kubeconfig", "no configuration")
	wants("", "prepare -o yaml", 1, 2*all-1, "it must be text or json")
}
