package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/lab"
)

// A pod on a flex node has the cluster's names and the lab's, and reaches a Service whose pod is on
// another node; so does who asks a port of a node. Between pods the source address is kept.
func TestServices(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	near, far := machine(t, "services-1"), machine(t, "services-2")
	must(t, near, "bootstrap")
	must(t, far, "bootstrap")
	asks, err := bench.RunPod(ctx, "services-near", near.Name)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := bench.RunPod(ctx, "services-far", far.Name)
	if err != nil {
		t.Fatal(err)
	}
	service := expose(t, "services-far")

	if err := bench.CheckServices(ctx, "services-near"); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"kubernetes.default.svc.cluster.local":   lab.KubernetesService,
		"services-far.default.svc.cluster.local": service.ip,
		"services-far":                           service.ip,
		"mirror." + lab.Zone:                     lab.HostIP,
	} {
		if got, err := bench.Resolve(ctx, "services-near", name); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %s", name, got, err, want)
		}
	}
	for name, host := range map[string]string{
		"pod": answers, "ClusterIP": service.ip, "name": "services-far",
	} {
		got, err := bench.Fetch(ctx, "services-near", "http://"+host+":8080/")
		if want := "hello from services-far to " + asks + ":"; err != nil ||
			!strings.HasPrefix(got, want) {
			t.Errorf("by its %s the pod says %q (%v), want %s", name, got, err, want)
		}
	}
	for _, m := range []lab.Machine{near, far} {
		got, err := bench.NodePort(ctx, m, service.port)
		if err != nil || !strings.HasPrefix(got, "hello from services-far ") {
			t.Errorf("port %s of %s says %q (%v)", service.port, m.Name, got, err)
		}
	}
}

// exposed is a Service.
type exposed struct{ ip, port string }

// expose makes a Service of a pod, with a port of every node.
func expose(t *testing.T, pod string) exposed {
	t.Helper()
	manifest := fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec:
  type: NodePort
  selector: {app: %[1]s}
  ports: [{port: 8080}]
`, pod)
	if _, err := bench.Kubectl(t.Context(), manifest, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	out, err := bench.Kubectl(t.Context(), "", "get", "service", pod, "-o",
		"jsonpath={.spec.clusterIP} {.spec.ports[0].nodePort}")
	fields := strings.Fields(out)
	if err != nil || len(fields) != 2 {
		t.Fatalf("the Service is %q: %v", out, err)
	}
	return exposed{ip: fields[0], port: fields[1]}
}
