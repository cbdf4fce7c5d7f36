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
	run := func(stdin string, args ...string) (string, int) {
		var out bytes.Buffer
		root := newRoot()
		root.SetArgs(append([]string{"cluster", "--kubeconfig", s.Kubeconfig}, args...))
		root.SetIn(strings.NewReader(stdin))
		root.SetOut(&out)
		root.SetErr(&out)
		err := root.ExecuteContext(t.Context())
		if err != nil {
			out.WriteString(err.Error())
		}
		return out.String(), exitCode(err)
	}
	wants := func(name, out string, got, code, writes int, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if !strings.Contains(out, text) {
				t.Errorf("%s does not say %q:\n%s", name, text, out)
			}
		}
		if got != code || s.Writes != writes {
			t.Errorf("%s: exit code %d, %d writes:\n%s", name, got, s.Writes, out)
		}
	}
	out, code := run("", "prepare", "--dry-run")
	wants("a dry run", out, code, 2, 0, "create     DaemonSet kube-system/aks-flex-node-kube-proxy",
		"(the cluster's operator)", "PodRoutes")
	out, code = run("no\n", "prepare", "--server", "https://api.example")
	wants("a refusal", out, code, 1, 0, "? [y/N]", "nothing was changed")
	out, code = run("", "prepare", "--server", "https://api.example", "-y")
	all := s.Writes
	wants("prepare", out, code, 2, all, "changes made", "missing   ClusterDNS")
	s.Put("/api/v1/namespaces/kube-system/services/kube-dns", `{"kind": "Service",
		"metadata": {"name": "kube-dns"}, "spec": {"clusterIP": "10.0.0.10"}}`)
	s.Put("/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/a", `{
		"kind": "EndpointSlice", "metadata": {"name": "a",
		"labels": {"kubernetes.io/service-name": "kube-dns"}},
		"endpoints": [{"addresses": ["::1"]}]}`)
	out, code = run("", "prepare", "--server", "https://api.example", "-o", "json")
	wants("a second time", out, code, 0, all, `"unchanged"`)
	var r prepare.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Version != "1.36.3" ||
		len(r.Checks) < 8 || len(r.Changes) != all {
		t.Errorf("%v: %+v", err, r)
	}
	out, code = run("", "unprepare", "--dry-run")
	wants("a dry run of unprepare", out, code, 2, all, "delete     DaemonSet")
	out, code = run("y\n", "unprepare")
	wants("unprepare", out, code, 0, 2*all-1, "changes made") // all but the ConfigMap
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1") // as in the provider's own pod
	out, code = run("", "prepare", "--kubeconfig", "")
	wants("without a kubeconfig", out, code, 1, 2*all-1, "cannot use the kubeconfig",
		"no configuration")
	out, code = run("", "prepare", "-o", "yaml")
	wants("a wrong flag", out, code, 1, 2*all-1, "it must be text or json")
}
