package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/AKSFlexNode/lab"
)

// A pod on a flex node can resolve the cluster's and the lab's names, and reaches a Service whose
// pod is on another node, as does a client of a node port. Source addresses between pods are
// preserved. All of it holds for both families if the cluster has both.
func TestServices(t *testing.T) {
	t.Parallel()
	m := bareMachine(t, "services-1")
	configure(t, m, lab.Newest, func(c map[string]any) {
		if bench.HasIPv6() {
			section(c, "node", "kubelet")["nodeIP"] = m.IP + "," + m.IPv6()
		}
	})
	must(t, m, "bootstrap")
	if _, err := bench.RunPod(t.Context(), m.Name, m.Name); err != nil {
		t.Fatal(err)
	}
	connected(t, m)
	if bench.HasIPv6() {
		at := lab.Machine{Name: m.Name, IP: m.IPv6()}
		got, err := bench.NodePort(t.Context(), at, peer(t).service.Port)
		if err != nil || !strings.HasPrefix(got, "hello from peer ") {
			t.Errorf("by IPv6 the port of the node says %q (%v)", got, err)
		}
	}
}

// neighbour is a node with a pod and the pod's Service, both named like the node.
type neighbour struct {
	lab.Machine
	pods    []string // the pod's addresses
	service lab.Exposed
}

// peer returns a second node, which is shared by all tests and remains.
func peer(t *testing.T) neighbour {
	t.Helper()
	n, err := sharedPeer()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var sharedPeer = sync.OnceValues(func() (n neighbour, err error) {
	ctx := context.Background()
	if n.Machine, err = bench.AddMachine(ctx, "peer"); err != nil {
		return n, err
	}
	var out strings.Builder
	err = bench.Join(ctx, n.Machine, agent, lab.Newest, "bootstrapToken", &out, &out)
	if err != nil {
		return n, fmt.Errorf("the peer does not join: %w\n%s", err, &out)
	}
	if _, err = bench.RunPod(ctx, n.Name, n.Name); err != nil {
		return n, err
	}
	if n.pods, err = bench.PodIPs(ctx, n.Name); err != nil {
		return n, err
	}
	n.service, err = bench.Expose(ctx, n.Name)
	return n, err
})

// connected checks that a node's pod, named like the node, and the node's ports reach others, and
// that the pod can be reached.
func connected(t *testing.T, m lab.Machine) {
	t.Helper()
	ctx, other := t.Context(), peer(t)
	own, err := bench.PodIPs(ctx, m.Name)
	if err != nil || len(own) != len(other.pods) || bench.HasIPv6() && len(own) != 2 {
		t.Fatalf("the pod's addresses are %v, those of the other are %v: %v", own, other.pods, err)
	}
	if err := bench.CheckServices(ctx, m.Name); err != nil {
		t.Error(err)
	}
	got, err := bench.Resolve(ctx, m.Name, other.Name+".default.svc.cluster.local")
	found := strings.Fields(got)
	if slices.Sort(found); err != nil || !slices.Equal(found, slices.Sorted(slices.Values(
		other.service.IPs))) {
		t.Errorf("the Service's name is %q (%v), want %v", got, err, other.service.IPs)
	}
	says(t, m.Name, other.Name, "hello from "+other.Name+" to ")
	for i, ip := range own {
		here, there := "to "+net.JoinHostPort(ip, ""), "to "+net.JoinHostPort(other.pods[i], "")
		says(t, m.Name, other.pods[i], "hello from "+other.Name+" "+here)
		says(t, m.Name, other.service.IPs[i], "hello from "+other.Name+" "+here)
		says(t, other.Name, ip, "hello from "+m.Name+" "+there)
	}
	for _, node := range []lab.Machine{m, other.Machine} {
		got, err := bench.NodePort(ctx, node, other.service.Port)
		if err != nil || !strings.HasPrefix(got, "hello from "+other.Name+" ") {
			t.Errorf("port %s of %s says %q (%v)", other.service.Port, node.Name, got, err)
		}
	}
}

// says fails the test unless a pod gets a response with the prefix want.
func says(t *testing.T, pod, host, want string) {
	t.Helper()
	got, err := bench.Fetch(t.Context(), pod, "http://"+net.JoinHostPort(host, "8080")+"/")
	if err != nil || !strings.HasPrefix(got, want) {
		t.Errorf("%s says to pod %s %q (%v), want %q", host, pod, got, err, want)
	}
}
