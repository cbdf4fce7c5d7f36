package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
	"github.com/Azure/AKSFlexNode/lab/images"
)

// foreignBridge is a network configuration of another program. Its name sorts before ours, so it
// takes precedence.
const foreignBridge = `{"cniVersion":"1.0.0","name":"foreign","plugins":[{"type":"bridge",
"bridge":"fb0","isGateway":true,"ipMasq":true,"ipam":{"type":"host-local",
"ranges":[[{"subnet":"10.250.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
{"type":"portmap","capabilities":{"portMappings":true}}]}
`

// Pods cannot reach their machine's metadata service, in our network and in another one, while the
// machine can, and a hostPort works through localhost. A network that is installed later and
// renames ours, as Cilium does, is not reported as drift or changed. The rules for pods' traffic
// out of the cluster's network are there, also after a reload of nftables, and leave with the node.
func TestMetadataGuard(t *testing.T) {
	t.Parallel()
	const service = "http://169.254.169.254/metadata/instance?api-version=2021-02-01"
	m := bareMachine(t, "metadata-1")
	if err := bench.AddVMIdentity(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	configure(t, m, lab.Newest)
	must(t, m, "bootstrap")
	for _, verb := range []string{"start", "reload"} { // both flush all rules
		command(t, m, "systemctl", verb, "nftables")
	}
	natRules(t, m, true)

	ours := podWithHostPort(t, m, "metadata-ours")
	if out, code := inside(t, m, "curl", "-sS", "-H", "Metadata: true", service); code != 0 {
		t.Errorf("the machine does not reach its metadata service: %s", out)
	}
	refused := func(pod string) {
		t.Helper()
		out, err := bench.Kubectl(t.Context(), "", "exec", pod, "--", "/hello", "client", service)
		if err == nil || !strings.Contains(fmt.Sprint(out, err), "connection refused") {
			t.Errorf("pod %s asks the metadata service: %s, %v", pod, out, err)
		}
		for _, prefix := range [][]string{nil, sandbox(t)} { // the second is the service's
			if got := status(t, m, prefix...).condition("MetadataGuarded"); got != "True/AsExpected" {
				t.Errorf("with pod %s and %q the condition is %s", pod, prefix, got)
			}
		}
	}
	refused(ours)
	if _, err := bench.Kubectl(t.Context(), "", "delete", "pod", ours); err != nil {
		t.Fatal(err)
	}

	const dir = "/etc/cni/net.d/"
	const conflist = dir + "99-aks-flex-node.conflist"
	if err := bench.Write(m, dir+"05-foreign.conflist", 0o644, []byte(foreignBridge)); err != nil {
		t.Fatal(err)
	}
	sure(t, m, "mv", conflist, conflist+".cilium_bak")
	if found := drift(t, m); len(found) != 0 {
		t.Errorf("drift: %+v", found)
	}
	must(t, m, "drift", "--repair")
	if _, err := os.Stat(filepath.Join(m.Root, conflist)); !os.IsNotExist(err) {
		t.Errorf("ours is back: %v", err)
	}
	foreign := podWithHostPort(t, m, "metadata-foreign")
	if ips, err := bench.PodIPs(t.Context(), foreign); err != nil || len(ips) != 1 ||
		!strings.HasPrefix(ips[0], "10.250.0.") {
		t.Fatalf("the pod's address is %v, %v", ips, err)
	}
	refused(foreign)

	must(t, m, "unbootstrap", "--yes")
	natRules(t, m, false)
	if out, code := inside(t, m, "nft", "list", "tables"); code != 0 ||
		strings.Contains(out, "aks-flex-node") {
		t.Errorf("after unbootstrap there are the tables\n%s", out)
	}
}

// podWithHostPort runs a pod, reaches it through its machine's localhost, and returns its name.
func podWithHostPort(t *testing.T, m lab.Machine, name string) string {
	t.Helper()
	_, err := bench.StartPod(t.Context(), name, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers:
  - {name: hello, image: "%s", ports: [{containerPort: 8080, hostPort: 18080}]}
`, name, m.Name, images.Hello))
	if err != nil {
		t.Fatal(err)
	}
	out, code := inside(t, m, "curl", "-sS", "--retry", "5", "--retry-connrefused",
		"http://127.0.0.1:18080/")
	if code != 0 || !strings.HasPrefix(out, "hello from "+name) {
		t.Errorf("the hostPort of %s says through localhost: %s", name, out)
	}
	return name
}
