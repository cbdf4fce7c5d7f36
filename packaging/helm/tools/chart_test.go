// Package tools tests the chart by rendering it as helm does. It is a separate module, so that the
// project does not depend on helm.
package tools

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

const chart = "../flexnode-rp"

type object = map[string]any

// minimal returns the values without a default, and more.
func minimal(more string) object {
	values := object{}
	text := "settings: {publicURL: 'https://flexnode.example.org', tenantId: t}\n" + more
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		panic(err)
	}
	return values
}

var external = `
store: external
etcd: {endpoints: ['https://etcd-0:2379']}
secrets: {etcd: etcd-client, kubeconfigs: kubeconfigs}
networkPolicy: {create: true, metricsFrom: [{namespaceSelector: {}}]}
serviceMonitor: {create: true, labels: {k: l}}
prometheusRule: {create: true, agents: true, labels: {m: o}}
dashboards: {create: true}
podAnnotations: {a: b}
podLabels: {c: d}
extraEnv: [{name: GOGC, value: "100"}]
nodeSelector: {e: f}
tolerations: [{operator: Exists}]
imagePullSecrets: [{name: pull}]
priorityClassName: high
service: {type: NodePort, nodePort: 30447, annotations: {g: h}}
serviceAccount: {annotations: {i: j}}
image: {digest: 'sha256:` + strings.Repeat("0", 64) + `'}
`

// render returns the chart's objects.
func render(t *testing.T, values object) (list []object) {
	t.Helper()
	list, err := rendered(values)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func rendered(values object) ([]object, error) { return released("dev", "kube-system", values) }

// released renders the chart of a program version for a release in a namespace.
func released(version, namespace string, values object) (list []object, err error) {
	c, err := loader.Load(chart)
	if err != nil {
		return nil, err
	}
	c.Metadata.AppVersion = version
	options := chartutil.ReleaseOptions{Name: "flexnode-rp", Namespace: namespace}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: "v1.35.4", Major: "1", Minor: "35"}
	all, err := chartutil.ToRenderValues(c, values, options, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return nil, err
	}
	for name, text := range files {
		if strings.HasSuffix(name, "NOTES.txt") || strings.Contains(name, "/_") {
			continue
		}
		for document := range strings.SplitSeq(text, "\n---\n") {
			var o object
			if err := yaml.UnmarshalStrict([]byte(document), &o); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", name, err, document)
			}
			if o != nil {
				list = append(list, o)
			}
		}
	}
	return list, nil
}

// at returns the value at a path, or nil.
func at(o any, path ...string) any {
	for _, p := range path {
		m, _ := o.(object)
		o = m[p]
	}
	return o
}

func find(list []object, kind, name string) object {
	i := slices.IndexFunc(list, func(o object) bool {
		return o["kind"] == kind && at(o, "metadata", "name") == name
	})
	if i < 0 {
		return nil
	}
	return list[i]
}

func TestLint(t *testing.T) {
	for name, more := range map[string]string{"embedded": "", "external": external} {
		result := lint.All(chart, minimal(more), "kube-system", true)
		for _, m := range result.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// With an embedded store there is one replica; several share an external etcd.
func TestShapes(t *testing.T) {
	embedded := render(t, minimal(""))
	set := find(embedded, "StatefulSet", "flexnode-rp")
	if at(set, "spec", "replicas") != float64(1) ||
		at(set, "spec", "podManagementPolicy") != "Parallel" ||
		find(embedded, "Deployment", "flexnode-rp") != nil {
		t.Errorf("embedded: %v", set)
	}
	several := render(t, minimal(external))
	deployment := find(several, "Deployment", "flexnode-rp")
	if at(deployment, "spec", "replicas") != float64(3) ||
		find(several, "StatefulSet", "flexnode-rp") != nil ||
		find(several, "PodDisruptionBudget", "flexnode-rp") == nil {
		t.Errorf("external: %v", deployment)
	}
	for _, tt := range []struct {
		list []object
		want object
	}{
		{embedded, object{"dataDir": "/var/lib/flexnode-rp/data"}},
		{several, object{"etcd": object{"endpoints": []any{"https://etcd-0:2379"},
			"caFile":   "/etc/flexnode-rp/etcd/ca.crt",
			"certFile": "/etc/flexnode-rp/etcd/tls.crt",
			"keyFile":  "/etc/flexnode-rp/etcd/tls.key"}}},
	} {
		text, _ := at(find(tt.list, "ConfigMap", "flexnode-rp"), "data", "settings.json").(string)
		var settings object
		if err := json.Unmarshal([]byte(text), &settings); err != nil {
			t.Fatal(err)
		}
		for key, want := range tt.want {
			if !reflect.DeepEqual(settings[key], want) {
				t.Errorf("%s is %v, want %v", key, settings[key], want)
			}
		}
		if settings["publicURL"] != "https://flexnode.example.org" {
			t.Errorf("the owner's settings are lost: %s", text)
		}
	}
}

// The objects have no fields unknown to Kubernetes.
func TestMembers(t *testing.T) {
	known := map[string]func() any{
		"StatefulSet":         func() any { return new(appsv1.StatefulSet) },
		"Deployment":          func() any { return new(appsv1.Deployment) },
		"Pod":                 func() any { return new(corev1.Pod) },
		"Service":             func() any { return new(corev1.Service) },
		"ConfigMap":           func() any { return new(corev1.ConfigMap) },
		"ServiceAccount":      func() any { return new(corev1.ServiceAccount) },
		"NetworkPolicy":       func() any { return new(networkingv1.NetworkPolicy) },
		"PodDisruptionBudget": func() any { return new(policyv1.PodDisruptionBudget) },
	}
	seen := map[any]bool{}
	for _, o := range append(render(t, minimal("")), render(t, minimal(external))...) {
		kind, _ := o["kind"].(string)
		if known[kind] == nil {
			continue // rights are compared below; ServiceMonitor is of another project
		}
		seen[kind] = true
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(text, known[kind](), yaml.DisallowUnknownFields); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if len(seen) != len(known) {
		t.Errorf("there are only %v", seen)
	}
}

// No Service of the provider selects the test's pod, which can reach the provider's metrics.
func TestTestPod(t *testing.T) {
	list := render(t, minimal(external))
	pod := find(list, "Pod", "flexnode-rp-test")
	labels, _ := at(pod, "metadata", "labels").(object)
	selects := func(selector any) bool {
		wanted, _ := selector.(object)
		for key, value := range wanted {
			if labels[key] != value {
				return false
			}
		}
		return len(wanted) > 0
	}
	for _, name := range []string{"flexnode-rp", "flexnode-rp-metrics"} {
		if selects(at(find(list, "Service", name), "spec", "selector")) {
			t.Errorf("the Service %s leads to the test's pod: %v", name, labels)
		}
	}
	if labels["app.kubernetes.io/instance"] != "flexnode-rp" {
		t.Errorf("the test's pod is of no release: %v", labels)
	}
	// It runs the provider's image, under the same conditions.
	deployment := find(list, "Deployment", "flexnode-rp")
	own, _ := at(deployment, "spec", "template", "spec").(object)
	tests, _ := at(pod, "spec").(object)
	for _, key := range []string{"imagePullSecrets", "nodeSelector", "tolerations"} {
		if tests[key] == nil || !reflect.DeepEqual(tests[key], own[key]) {
			t.Errorf("%s of the test's pod is %v, want %v", key, tests[key], own[key])
		}
	}
	container := func(spec object) any { return spec["containers"].([]any)[0] }
	if got, want := at(container(tests), "image"), at(container(own), "image"); got != want {
		t.Errorf("the test's image is %v, want %v", got, want)
	}
	if got := fmt.Sprint(at(container(tests), "args")); got !=
		"[ready http://flexnode-rp-metrics:9447]" {
		t.Errorf("the test runs %s", got)
	}
	ingress, _ := at(find(list, "NetworkPolicy", "flexnode-rp"), "spec", "ingress").([]any)
	from, _ := at(ingress[1], "from").([]any)
	if len(from) != 2 || !selects(at(from[0], "podSelector", "matchLabels")) {
		t.Errorf("the test's pod does not get through: %v", ingress)
	}
}

// The provider does not run on flex nodes by default.
func TestFlexNodesAreAvoided(t *testing.T) {
	for more, want := range map[string]bool{"": true, "affinity: null\n": false} {
		affinity := at(find(render(t, minimal(more)), "StatefulSet", "flexnode-rp"),
			"spec", "template", "spec", "affinity")
		if got := strings.Contains(fmt.Sprint(affinity), "kubernetes.azure.com/managed"); got != want {
			t.Errorf("%q: the affinity is %v", more, affinity)
		}
	}
}

// A version with build metadata is adapted to be a valid label and tag.
func TestVersion(t *testing.T) {
	list, err := released("1.2.3+abc", "kube-system", minimal(""))
	if err != nil {
		t.Fatal(err)
	}
	set := find(list, "StatefulSet", "flexnode-rp")
	containers, _ := at(set, "spec", "template", "spec", "containers").([]any)
	if image := at(containers[0], "image"); image != "flexnode-rp:1.2.3-abc" {
		t.Errorf("the image is %v", image)
	}
	for _, o := range list {
		labels, _ := at(o, "metadata", "labels").(object)
		for key, value := range labels {
			if problems := validation.IsValidLabelValue(fmt.Sprint(value)); len(problems) > 0 {
				t.Errorf("%v: %s: %v", o["kind"], key, problems)
			}
		}
	}
}

// A long release name is truncated so that names and labels derived from it are valid.
func TestLongName(t *testing.T) {
	long := strings.Repeat("long-", 12) + "name"
	for _, values := range []object{minimal("fullnameOverride: " + long),
		minimal(external + "fullnameOverride: " + long)} {
		list, err := rendered(values)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			name, _ := at(o, "metadata", "name").(string)
			switch o["kind"] {
			case "StatefulSet", "Deployment":
				// controller-revision-hash and pod-template-hash of its pods
				name += "-0123456789"
			case "Service":
			default:
				continue
			}
			if problems := validation.IsDNS1035Label(name); len(problems) > 0 {
				t.Errorf("%v %s: %v", o["kind"], name, problems)
			}
		}
	}
}

var update = flag.Bool("update", false, "copy rules and dashboards into the chart")

// Rules and dashboards are the same as in packaging/monitoring.
func TestMonitoring(t *testing.T) {
	read := func(name string) []byte {
		text, err := os.ReadFile("../../monitoring/" + name)
		if err == nil && *update {
			err = os.WriteFile(chart+"/files/"+name, text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, kind := range []string{"provider", "agent"} {
		rules, dashboard := read(kind+".rules.yaml"), read(kind+".dashboard.json")
		list := render(t, minimal(external))
		var want object
		if err := yaml.Unmarshal(rules, &want); err != nil {
			t.Fatal(err)
		}
		rule := find(list, "PrometheusRule", "flexnode-rp-"+kind)
		if got := at(rule, "spec"); !reflect.DeepEqual(got, want) ||
			at(rule, "metadata", "labels", "m") != "o" {
			t.Errorf("the rules of the chart are not %s.rules.yaml: %v; go test -update", kind,
				at(rule, "metadata"))
		}
		config := find(list, "ConfigMap", "flexnode-rp-dashboard-"+kind)
		got, _ := at(config, "data", "flexnode-"+kind+".json").(string)
		if strings.TrimSpace(got) != strings.TrimSpace(string(dashboard)) ||
			at(config, "metadata", "labels", "grafana_dashboard") != "1" {
			t.Errorf("the chart's dashboard is not %s.dashboard.json; go test -update", kind)
		}
	}
	monitor := find(render(t, minimal(external)), "ServiceMonitor", "flexnode-rp")
	if at(monitor, "metadata", "labels", "k") != "l" {
		t.Errorf("ServiceMonitor: %v", monitor)
	}
	for _, o := range render(t, minimal("prometheusRule: {create: true}")) {
		if o["kind"] == "PrometheusRule" && at(o, "metadata", "name") != "flexnode-rp-provider" {
			t.Errorf("%v is not asked for", at(o, "metadata"))
		}
	}
	for _, o := range render(t, minimal("")) {
		if o["apiVersion"] == "monitoring.coreos.com/v1" {
			t.Errorf("%v is not asked for", o["kind"])
		}
	}
}

// Every pod meets the Pod Security Standard "restricted".
func TestPodSecurity(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}
	count := 0
	for _, o := range append(render(t, minimal("")), render(t, minimal(external))...) {
		pod := o
		switch o["kind"] {
		case "StatefulSet", "Deployment":
			pod, _ = at(o, "spec", "template").(object)
		case "Pod":
		default:
			continue
		}
		count++
		text, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		var p struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
			Spec     corev1.PodSpec    `json:"spec"`
		}
		if err := yaml.Unmarshal(text, &p); err != nil {
			t.Fatal(err)
		}
		for _, r := range evaluator.EvaluatePod(level, &p.Metadata, &p.Spec) {
			if !r.Allowed {
				t.Errorf("%v: %s: %s", o["kind"], r.ForbiddenReason, r.ForbiddenDetail)
			}
		}
		if !*p.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("%v can write its root file system", o["kind"])
		}
	}
	if count != 4 {
		t.Errorf("%d pods were looked at, want 4", count)
	}
}

// Releases with one name in two namespaces share no objects, if one of them does not install the
// cluster-wide ones: helm would refuse the second.
func TestNamespaces(t *testing.T) {
	seen := map[string]string{}
	for namespace, more := range map[string]string{"one": "", "two": "rbac: {revocation: false}\n"} {
		list, err := released("dev", namespace, minimal(external+more))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			key := fmt.Sprint(o["kind"], " ", at(o, "metadata", "namespace"), " ",
				at(o, "metadata", "name"))
			if other := seen[key]; other != "" {
				t.Errorf("%s is of the releases in %s and %s", key, other, namespace)
			}
			seen[key] = namespace
		}
	}
}

// The chart grants the provider the rights in manifests/ and no others.
func TestRBAC(t *testing.T) {
	text, err := os.ReadFile("../../../manifests/rbac-provider.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[string]object{}, map[string]object{}
	keep := func(into map[string]object, o object) {
		if o == nil || o["apiVersion"] != "rbac.authorization.k8s.io/v1" &&
			at(o, "metadata", "name") != "flexnode-revoked" {
			return
		}
		delete(o["metadata"].(object), "labels")
		delete(o["metadata"].(object), "annotations")
		for _, named := range []any{o["metadata"], o["roleRef"]} { // the release is in kube-system
			if named, ok := named.(object); ok {
				named["name"] = strings.Replace(fmt.Sprint(named["name"]), ":kube-system", "", 1)
			}
		}
		subjects, _ := o["subjects"].([]any)
		if subjects != nil { // the user with a client certificate is an alternative
			o["subjects"] = slices.DeleteFunc(subjects,
				func(s any) bool { return at(s, "kind") == "User" })
		}
		into[fmt.Sprint(o["kind"], at(o, "metadata"))] = o
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatal(err)
		}
		keep(want, o)
	}
	for _, o := range render(t, minimal("")) {
		keep(got, o)
	}
	if len(want) < 10 || !reflect.DeepEqual(got, want) {
		a, _ := yaml.Marshal(got)
		b, _ := yaml.Marshal(want)
		t.Errorf("the chart has\n%s\nwant\n%s", a, b)
	}
	for _, o := range render(t, minimal("rbac: {create: false}")) {
		if o["apiVersion"] == "rbac.authorization.k8s.io/v1" {
			t.Errorf("without rbac there is %v", o)
		}
	}
}

// Revocations outlive the release, and an upgrade does not overwrite them.
func TestRevocationsAreKept(t *testing.T) {
	for _, o := range render(t, minimal("")) {
		if o["kind"] != "ConfigMap" || at(o, "metadata", "name") != "flexnode-revoked" {
			continue
		}
		_, data := o["data"]
		if at(o, "metadata", "annotations", "helm.sh/resource-policy") != "keep" || data {
			t.Errorf("the ConfigMap of revoked certificates is %v", o)
		}
		return
	}
	t.Error("the chart has no ConfigMap of revoked certificates")
}

// Invalid values are refused before anything is installed.
func TestWrongValues(t *testing.T) {
	for more, want := range map[string]string{
		"replica: 3":             "replica",
		"store: both":            "store",
		"store: external":        "endpoints",
		"service: {port: 99999}": "port",
		"image: {digest: abc}":   "digest",
		"replicas: 0":            "replicas",
	} {
		if _, err := rendered(minimal(more)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", more, err)
		}
	}
	if _, err := rendered(object{}); err == nil {
		t.Error("a provider without publicURL is not refused")
	}
}
