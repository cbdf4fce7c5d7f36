package e2e

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
	"github.com/Azure/AKSFlexNode/lab/images"
)

// loads is a pod that loads a hello with one stream and many requests, and counts them.
const loads = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  nodeName: %[2]s
  hostNetwork: %[5]t
  terminationGracePeriodSeconds: 1
  containers:
  - {name: hello, image: "%[3]s", args: [load, "%[4]s"], resources: {requests: {cpu: 100m}}}
`

// Clients that stream through a Service see no error while kubelet changes by a patch, containerd
// by two minor versions, and the agent's program is replaced: not in a pod of the node, in the
// node's own network, or on another node through a port of this one. A device plugin registers
// again with the new kubelet, as with every one, and is otherwise not affected.
func TestStream(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := bareMachine(t, "stream-1")
	configure(t, m, lab.Former)
	serve(t, m)
	if _, err := bench.RunPod(ctx, "streams", m.Name); err != nil {
		t.Fatal(err)
	}
	service, err := bench.Expose(ctx, "streams")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := bench.NodePort(ctx, m, service.Port); err != nil {
		t.Fatalf("the port of the node says %q: %v", got, err)
	}
	byIP := "http://" + net.JoinHostPort(service.IPs[0], "8080")
	byPort := "http://" + net.JoinHostPort(m.IP, service.Port)
	clients := map[string]struct {
		node, url   string
		hostNetwork bool
	}{
		"loads-inside":  {m.Name, byIP, false},
		"loads-host":    {m.Name, byIP, true},
		"loads-outside": {peer(t).Name, byPort, false},
	}
	for name, c := range clients {
		manifest := fmt.Sprintf(loads, name, c.node, images.Hello, c.url, c.hostNetwork)
		if _, err := bench.StartPod(ctx, name, manifest); err != nil {
			t.Fatal(err)
		}
	}
	progress := func(what string) {
		t.Helper()
		for name := range clients {
			loaded(t, name, what)
		}
	}
	plugin := startDevicePlugin(t, m)
	runWithDevice(t, m, "device")
	progress("before")
	were := pod(t, "streams") + pod(t, "device")

	change(t, m, lab.Versions{Kubernetes: lab.Newest.Kubernetes, Containerd: lab.Former.Containerd})
	progress("with another kubelet")
	plugin.again(t, m)
	change(t, m, lab.Newest)
	progress("with another containerd")
	plugin.kept(t, func() { replaceAgent(t, m) })
	progress("with another agent")

	if now := pod(t, "streams") + pod(t, "device"); now != were {
		t.Errorf("the pods are %s, were %s", now, were)
	}
	if out := must(t, m, "status"); !strings.Contains(out, "Ready") {
		t.Errorf("status says\n%s", out)
	}
}

// change gives a node other versions through its daemon, and waits until it has them.
func change(t *testing.T, m lab.Machine, v lab.Versions) {
	t.Helper()
	before := kubelet(t, m)
	config, err := bench.Config(t.Context(), m, v, map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	edit(t, m, func(c map[string]any) {
		for _, name := range []string{"kubernetes", "containerd", "artifacts"} {
			c[name] = config[name]
		}
	})
	want := "v" + v.Kubernetes + " containerd://" + v.Containerd
	eventually(t, want, func() bool {
		is := nodeOf(t, m.Name).Status.NodeInfo
		return is.KubeletVersion+" "+is.ContainerRuntimeVersion == want && ready(t, m)
	})
	eventually(t, "the end of the change", func() bool {
		return applied(m, `"version": "`+v.Kubernetes) && applied(m, `"version": "`+v.Containerd)
	})
	t.Logf("%s: kubelet is %s, was %s", want, kubelet(t, m), before)
}

// replaceAgent replaces the agent's program, as a package does, and restarts its daemon.
func replaceAgent(t *testing.T, m lab.Machine) {
	t.Helper()
	program, err := os.ReadFile(agent)
	if err != nil {
		t.Fatal(err)
	}
	const path = "/usr/local/bin/aks-flex-node"
	if err := bench.Write(m, path, 0o755, append(program, "another build"...)); err != nil {
		t.Fatal(err)
	}
	if out, code := inside(t, m, "systemctl", "restart", "aks-flex-node-agent"); code != 0 {
		t.Fatalf("the daemon does not start again: %s", out)
	}
	eventually(t, "the daemon's status", func() bool {
		return statusFile(t, m).Ready == "True"
	})
}

var loadCounts = regexp.MustCompile(`lines=(\d+) breaks=(\d+) requests=(\d+) failures=(\d+)\n$`)

// loaded waits until a client has made progress, and fails the test if it has seen an error.
func loaded(t *testing.T, name, when string) {
	t.Helper()
	first, last := int64(-1), ""
	eventually(t, "progress of "+name, func() bool {
		out, err := bench.Kubectl(t.Context(), "", "logs", name)
		found := loadCounts.FindStringSubmatch(out)
		if err != nil || found == nil {
			return false
		}
		lines, err := strconv.ParseInt(found[1], 10, 64)
		if first < 0 {
			first = lines
		}
		last = strings.TrimSpace(found[0])
		if found[2] != "0" || found[4] != "0" {
			t.Fatalf("%s, %s: %s\n%s", name, when, last, out)
		}
		return err == nil && lines >= first+20
	})
	t.Logf("%s, %s: %s", name, when, last)
}
