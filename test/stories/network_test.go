package stories

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	empty "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/health"
)

const (
	ours   = "/etc/cni/net.d/99-aks-flex-node.conflist"
	cilium = "/etc/cni/net.d/05-cilium.conflist"
)

func (w *world) exists(path string) bool {
	_, err := os.Lstat(filepath.Join(w.root, path))
	return err == nil
}

// steady fails unless the node is healthy without drift, and a bootstrap finds nothing to do.
func (w *world) steady(when string) {
	w.t.Helper()
	if report, err := w.drift(false); err != nil || len(report.Changes) > 0 {
		w.t.Errorf("%s: drift: %v %+v", when, err, report.Changes)
	}
	if result, err := w.bootstrap(); err != nil || result.Changes > 0 {
		w.t.Errorf("%s: %d changes, %v", when, result.Changes, err)
	}
	if c := w.condition(health.NodeReady); c.Status != health.True {
		w.t.Errorf("%s: the Node is not Ready: %s", when, c.Message)
	}
}

// A pod network that its DaemonSet installs while bootstrap waits makes the first join succeed, on
// a cluster that allocates no pod subnets. Its later changes are no drift.
func TestNetworkComesWithKubelet(t *testing.T) {
	w := newWorld(t)
	before := w.tree()
	w.cluster.noCIDR = true
	start := w.systemd.OnStart
	w.systemd.OnStart = func(unit, text string) error {
		if unit == "kubelet.service" && !w.exists(cilium) {
			time.AfterFunc(100*time.Millisecond, func() { w.write(cilium, `{"name": "cilium"}`) })
		}
		return start(unit, text)
	}
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if w.exists(ours) {
		t.Error("our network is there too")
	}
	w.steady("with the network that came")
	move(t, w, cilium, "/etc/cni/net.d/10-cilium.conflist")
	w.steady("with the network renamed")
	move(t, w, "/etc/cni/net.d/10-cilium.conflist", "/cilium")
	if report, err := w.drift(false); err != nil || len(report.Changes) > 0 {
		t.Errorf("with the network removed: drift: %v %+v", err, report.Changes)
	}
	if _, err := w.drift(true); err != nil {
		t.Error(err)
	}
	if w.exists(ours) {
		t.Error("a repair has installed a network without a pod subnet")
	}
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(w.root, "/cilium")); err != nil {
		t.Error(err)
	}
	w.same(before)
}

func move(t *testing.T, w *world, from, to string) {
	t.Helper()
	if err := os.Rename(filepath.Join(w.root, from), filepath.Join(w.root, to)); err != nil {
		t.Fatal(err)
	}
}

// A network that is installed into the cluster later takes precedence over ours: nothing changes it
// back, whether it leaves ours alone, renames it like Cilium, or is removed again.
func TestNetworkComesLater(t *testing.T) {
	w := newWorld(t)
	before := w.tree()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.steady("with our network")
	w.write(cilium, `{"name": "cilium"}`)
	w.steady("with a network beside ours")
	move(t, w, ours, ours+".cilium_bak")
	w.steady("with ours renamed")
	w.write("/proc/sys/net/ipv4/ip_forward", "0\n")
	if _, err := w.drift(true); err != nil || w.exists(ours) {
		t.Errorf("a repair of something else has brought ours back: %v", err)
	}
	w.steady("after a repair")
	move(t, w, ours+".cilium_bak", ours)
	if err := os.Remove(filepath.Join(w.root, cilium)); err != nil {
		t.Fatal(err)
	}
	w.steady("with ours again")
	w.write(cilium, `{"name": "cilium"}`)
	w.config.Node.MaxPods = 42 // a change takes in what there is
	if _, err := w.bootstrap(); err != nil || w.exists(ours) {
		t.Errorf("after a change ours is there: %v, %v", w.exists(ours), err)
	}
	w.steady("after a change")
	if err := os.Remove(filepath.Join(w.root, cilium)); err != nil {
		t.Fatal(err)
	}
	w.config.Node.MaxPods = 43
	if _, err := w.bootstrap(); err != nil || !w.exists(ours) {
		t.Errorf("without the other network ours is there: %v, %v", w.exists(ours), err)
	}
	w.steady("with our network back")
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}

// A network that comes after ours while the node joins, and renames ours like Cilium, is left
// alone: by the join, which succeeds, and afterwards.
func TestNetworkReplacesOursWhileJoining(t *testing.T) {
	for name, replace := range map[string]func(*world){
		"renames": func(w *world) { move(t, w, ours, ours+".cilium_bak") }, // Cilium
		"beside":  func(*world) {},                                         // Calico
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.config.CNI.NonMasqueradeCIDRs = []string{"10.244.0.0/16"}
			before, ready := w.tree(), w.cluster.ready
			var once sync.Once
			w.cluster.ready = func(node string) bool {
				if w.exists(ours) {
					once.Do(func() {
						w.write(cilium, `{"name": "cilium"}`)
						replace(w)
					})
				}
				return w.exists(cilium) && (ready == nil || ready(node))
			}
			if _, err := w.bootstrap(); err != nil {
				t.Fatal(err)
			}
			w.steady("with the network that came")
			if _, err := w.drift(true); err != nil {
				t.Error(err)
			}
			if w.exists(ours) {
				t.Error("ours is there")
			}
			if err := w.unbootstrap(); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(w.log.String(), "(05-cilium.conflist) stays") {
				t.Error("leaving does not warn of the network that stays")
			}
			for _, left := range []string{cilium, ours + ".cilium_bak"} {
				if err := os.RemoveAll(filepath.Join(w.root, left)); err != nil {
					t.Error(err)
				}
			}
			_ = os.Remove(filepath.Join(w.root, "/etc/cni/net.d")) // not empty when we left
			_ = os.Remove(filepath.Join(w.root, "/etc/cni"))
			w.same(before)
		})
	}
}

// The network of a container engine is not the cluster's. One before ours is refused before a join
// and a change, and is reported; one after ours has no effect.
func TestNetworkOfAnEngine(t *testing.T) {
	const dir = "/etc/cni/net.d/"
	const podman, nerdctl = dir + "87-podman-bridge.conflist", dir + "nerdctl-bridge.conflist"
	w := newWorld(t)
	w.write(nerdctl, `{"name": "bridge"}`)
	refused := func() {
		t.Helper()
		w.write(podman, `{"name": "podman"}`)
		before := w.tree()
		if _, err := w.bootstrap(); err == nil || !strings.Contains(err.Error(), "mv "+podman) {
			t.Errorf("the error is %v", err)
		}
		w.same(before)
		move(t, w, podman, "/podman")
	}
	refused()
	for _, maxPods := range []int{41, 42} {
		w.config.Node.MaxPods = maxPods
		if _, err := w.bootstrap(); err != nil || !w.exists(ours) {
			t.Fatalf("ours is there: %v, %v", w.exists(ours), err)
		}
		w.steady("with a network after ours")
	}
	w.write(podman, `{"name": "podman"}`)
	w.steady("with a network before ours")
	if c := w.condition("RuntimeOwned"); c.Reason != "ForeignNetwork" {
		t.Errorf("the condition is %+v", c)
	}
	w.config.Node.MaxPods = 43
	refused()
	if _, err := w.bootstrap(); err != nil {
		t.Error(err)
	}
	w.steady("with the network moved away")
}

// A node whose pod network left it with an engine's, before or after where ours would be, reports
// that, and gets ours by the advice, although its Node is still Ready.
func TestEngineInsteadOfTheNetwork(t *testing.T) {
	for _, name := range []string{"87-podman-bridge.conflist", "nerdctl-bridge.conflist"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.write(cilium, `{"name": "cilium"}`)
			if _, err := w.bootstrap(); err != nil || w.exists(ours) {
				t.Fatalf("ours is there: %v, %v", w.exists(ours), err)
			}
			engine := "/etc/cni/net.d/" + name
			move(t, w, cilium, engine)
			if c := w.condition("RuntimeOwned"); c.Reason != "ForeignNetwork" {
				t.Errorf("the condition is %+v", c)
			}
			ready := w.cluster.ready
			w.cluster.set(func() { w.cluster.ready = func(string) bool { return true } })
			move(t, w, engine, "/engine")
			if _, err := w.bootstrap(); err != nil || !w.exists(ours) {
				t.Errorf("ours is there: %v, %v", w.exists(ours), err)
			}
			w.cluster.set(func() { w.cluster.ready = ready })
			w.steady("with ours")
		})
	}
}

// A cluster that allocates a subnet of each family has pods with two addresses, and the machine
// forwards both.
func TestTwoFamilies(t *testing.T) {
	const local = "/proc/sys/net/ipv4/conf/all/route_localnet"
	w := newWorld(t)
	w.write(local, "0")
	before := w.tree()
	w.cluster.podCIDRs = []string{"10.244.7.0/24", "fd00:7::/64"}
	w.config.CNI.NonMasqueradeCIDRs = []string{"10.244.0.0/16", "fd00::/16"}
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		ours: `"subnet": "fd00:7::/64"`, "/proc/sys/net/ipv6/conf/all/forwarding": "1",
		"/opt/aks-flex-node/masquerade6.rules": "-d fd00::/16 -j RETURN",
	} {
		if text := w.read(file); !strings.Contains(text, want) {
			t.Errorf("%s does not have %q:\n%s", file, want, text)
		}
	}
	w.write(local, "1") // as kube-proxy does in iptables mode
	w.steady("with two families")
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}

// Pod subnets that the machine cannot have, or that differ from those in the configuration, are
// refused with the cure; after the cure the machine joins.
func TestPodSubnetsAreRefused(t *testing.T) {
	const off = "/proc/sys/net/ipv6/conf/default/disable_ipv6"
	for name, tt := range map[string]struct {
		before, cure func(*world)
		want         string
		// early is set if nothing changes.
		early bool
	}{
		"two families and no IPv6": {
			before: func(w *world) {
				w.cluster.podCIDRs = []string{"10.244.7.0/24", "fd00:7::/64"}
				w.write(off, "1\n")
			},
			cure: func(w *world) { w.write(off, "0\n") },
			want: "addresses of fd00:7::/64: IPv6 is disabled on this machine",
		},
		"a subnet of the configuration and no IPv6": {
			before: func(w *world) {
				w.config.CNI.PodCIDR = "fd00:7::/64"
				if err := os.RemoveAll(filepath.Join(w.root, "/proc/sys/net/ipv6")); err != nil {
					w.t.Fatal(err)
				}
			},
			cure: func(w *world) { w.config.CNI.PodCIDR = "10.244.9.0/24" },
			want: "IPv6 is disabled on this machine", early: true,
		},
		"one family where the configuration counts on two": {
			before: func(w *world) {
				w.config.CNI.NonMasqueradeCIDRs = []string{"10.244.0.0/16", "fd00::/16"}
			},
			cure: func(w *world) { w.config.CNI.NonMasqueradeCIDRs = []string{"10.244.0.0/16"} },
			want: "the cluster has allocated 10.244.7.0/24 to this Node, and no subnet of IPv6",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tt.before(w)
			before := w.tree()
			_, err := w.bootstrap()
			if err == nil || !strings.Contains(err.Error(), "PodSubnetsFit") ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q", err, tt.want)
			}
			if tt.early {
				w.same(before)
			}
			tt.cure(w)
			if _, err := w.bootstrap(); err != nil {
				t.Error(err)
			}
			w.steady("with the cure")
		})
	}
}

// A machine whose kernel has learned its default route from a router keeps accepting it while it
// forwards IPv6, after each change of the configuration, and is restored when it has left.
func TestMachineKeepsItsRouter(t *testing.T) {
	t.Parallel()
	const accepts, forwards = "/proc/sys/net/ipv6/conf/eth0.100/accept_ra",
		"/proc/sys/net/ipv6/conf/all/forwarding"
	const route = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 " +
		"fe800000000000000000000000000001 00000400 00000001 00000000 00450003 eth0.100\n"
	w := newWorld(t)
	w.write("/proc/net/ipv6_route", route)
	w.write(accepts, "1\n")
	w.write(forwards, "0\n")
	w.config = w.configuration(func(c map[string]any) {
		c["cni"] = map[string]any{"podCIDR": "fd00:10::/64"}
		c["node"].(map[string]any)["kubelet"].(map[string]any)["dnsServiceIP"] = "fd00:aa::a"
	})
	before := w.tree()
	for _, maxPods := range []int{30, 31} {
		w.config.Node.MaxPods = maxPods
		if _, err := w.bootstrap(); err != nil {
			t.Fatal(err)
		}
		if got := w.read(accepts) + w.read(forwards); got != "21" {
			t.Errorf("maxPods %d: the parameters are %q", maxPods, got)
		}
		w.steady("with its router")
	}
	file := w.read("/etc/sysctl.d/999-aks-flex-node-ipv6.conf")
	if !strings.Contains(file, "\nnet.ipv6.conf.eth0/100.accept_ra = 2\n"+
		"net.ipv6.conf.all.forwarding = 1\n") {
		t.Errorf("at boot they are\n%s", file)
	}
	w.write(accepts, "1\n") // as ifupdown does at each boot
	if found := w.check(); !slices.Equal(found.Repair, []string{
		"sysctl:net.ipv6.conf.eth0/100.accept_ra"}) {
		t.Errorf("with the policy report, %v are repaired", found.Repair)
	}
	w.write(accepts, "0\n") // as systemd-networkd does
	w.steady("with networkd")
	w.write(accepts, "2\n")
	interfaces := filepath.Join(w.root, filepath.Dir(accepts))
	if err := os.Rename(interfaces, interfaces+".away"); err != nil {
		t.Fatal(err)
	}
	w.steady("with the interface pulled out")
	if err := os.Rename(interfaces+".away", interfaces); err != nil {
		t.Fatal(err)
	}
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}

// pods serves the runtime's StopPodSandbox, which fails the next refuse times, and returns a
// function that gives pods the addresses, returned by another that lists those that still run.
func (w *world) pods(refuse *atomic.Int64) (run func(addresses ...string), left func() string) {
	w.t.Helper()
	const socket, cni = "/run/containerd/containerd.sock", "/var/lib/cni/"
	const dir = cni + "networks/aks-flex-node/"
	path := filepath.Join(w.root, socket)
	if err := os.Remove(path); err != nil {
		w.t.Fatal(err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		w.t.Fatal(err)
	}
	stop := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (
		any, error,
	) {
		var request empty.HealthCheckRequest // like the request, it has a string as its field 1
		if err := decode(&request); err != nil || refuse.Add(-1) >= 0 {
			return nil, errors.Join(err, errors.New("the runtime is busy"))
		}
		address, _ := strings.CutPrefix(request.Service, "id of ")
		return &request, os.Remove(filepath.Join(w.root, dir, address))
	}
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "runtime.v1.RuntimeService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "StopPodSandbox", Handler: stop}},
	}, struct{}{})
	go server.Serve(listener)
	w.t.Cleanup(server.Stop)
	w.write(dir+"lock", "")
	w.write(dir+"last_reserved_ip.0", "10.244.7.9")
	run = func(addresses ...string) {
		for _, address := range addresses {
			w.write(dir+address, "id of "+address+"\r\neth0")
			w.write(cni+"results/aks-flex-node-id of "+address+"-eth0",
				`{"result":{"ips":[{"address":"`+address+`/24"}]}}`)
		}
	}
	left = func() string {
		found, err := filepath.Glob(filepath.Join(w.root, dir, "1*"))
		if err != nil {
			w.t.Error(err)
		}
		for i := range found {
			found[i] = filepath.Base(found[i])
		}
		return strings.Join(found, " ")
	}
	return run, left
}

// The pod subnet of the configuration is added and removed with it, forward and back. Pods with
// addresses of another subnet are drained, and those that remain are restarted.
func TestPodSubnetChanges(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	run, left := w.pods(new(atomic.Int64))
	subnet := func(cidr string, pods int) {
		w.config = w.configuration(func(c map[string]any) {
			c["node"].(map[string]any)["maxPods"] = pods
			if cidr != "" {
				c["cni"] = map[string]any{"podCIDR": cidr}
			}
		})
	}
	configured := func(cidr string) {
		t.Helper()
		text := w.read("/etc/cni/net.d/99-aks-flex-node.conflist")
		if !strings.Contains(text, `"subnet": "`+cidr+`"`) {
			t.Errorf("the pod network is not on %s:\n%s", cidr, text)
		}
		w.wholly(t, cidr)
	}
	subnet("10.9.0.0/24", 110)
	run("10.244.7.4", "10.244.7.5", "10.9.0.4")
	plan, err := change.Plan(t.Context(), w.agent(), change.Input{Config: w.config})
	result, bootErr := w.bootstrap()
	if err = errors.Join(err, bootErr); err != nil || len(plan.Changes) != result.Changes ||
		!plan.Drains {
		t.Errorf("%v, planned %+v, and made %d changes", err, plan, result.Changes)
	}
	configured("10.9.0.0/24")
	if got := left(); got != "10.9.0.4" {
		t.Errorf("the addresses of pods are %s", got)
	}
	run("10.8.0.4") // a pod of the change that fails
	before, start := w.config, w.systemd.OnStart
	w.refuseChangedKubelet()
	subnet("10.8.0.0/24", 42)
	if _, err := w.bootstrap(); err == nil {
		t.Error("a kubelet that does not start is committed")
	}
	configured("10.9.0.0/24")
	if got := left(); got != "10.9.0.4" {
		t.Errorf("after a rollback the addresses of pods are %s", got)
	}
	w.config, w.systemd.OnStart = before, start
	run("10.9.1.4")
	w.remove(t, "/var/lib/cni/results/aks-flex-node-id of 10.9.1.4-eth0")
	subnet("10.9.0.0/23", 110)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	configured("10.9.0.0/23")
	if got := left(); got != "10.9.1.4" { // whose prefix is not known
		t.Errorf("in a larger subnet the addresses of pods are %s", got)
	}
	subnet("", 110)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	configured("10.244.7.0/24")
}

// A Node that was registered again has other pod subnets: that is a condition and drift, which
// every repair of the node fixes. It does not prevent changes.
func TestPodSubnetsOfANewNode(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if c := w.condition(health.PodSubnetsAgree); c.Status != health.True {
		t.Errorf("the condition is %+v", c)
	}
	var refuse atomic.Int64
	run, left := w.pods(&refuse)
	n := 0
	another := func() (subnet string) {
		n++
		subnet = fmt.Sprintf("10.244.9%d.0/24", n)
		w.cluster.set(func() {
			spec := &w.cluster.nodes["edge-1"].Spec
			spec.PodCIDR, spec.PodCIDRs = subnet, []string{subnet}
		})
		return subnet
	}
	for how, repair := range map[string]func() error{
		"drift --repair": func() error { _, err := w.drift(true); return err },
		"bootstrap":      func() error { _, err := w.bootstrap(); return err },
		"the daemon": func() error {
			found := w.check()
			if !slices.Contains(found.Drift, "node:subnets") {
				t.Errorf("drift is %v", found.Drift)
			}
			return w.repair("node:subnets")
		},
		"a change": func() error {
			w.config = w.configuration(nodeSetting("maxPods", 42))
			_, err := w.bootstrap()
			return err
		},
	} {
		subnet := another()
		run(strings.Replace(subnet, ".0/24", ".4", 1), "10.244.7.5", "10.244.7.6")
		c := w.condition(health.PodSubnetsAgree)
		if c.Status != health.False || !strings.Contains(c.Message, subnet) {
			t.Errorf("%s: the condition is %+v", how, c)
		}
		if report, err := w.drift(false); err != nil || len(report.Changes) != 1 {
			t.Errorf("%s: drift is %+v, %v", how, report, err)
		}
		w.write("/proc/sys/net/ipv4/ip_forward", "0\n")
		refuse.Store(1)
		if err := repair(); err != nil {
			t.Errorf("%s: %v", how, err)
		}
		if strings.Count(w.log.String(), "10.244.7.5, which is cut off") != n {
			t.Errorf("%s: the log does not name the pod that does not end:\n%s", how, w.log.String())
		}
		if got := left(); got != "10.244.7.5 "+strings.Replace(subnet, ".0/24", ".4", 1) {
			t.Errorf("%s: the addresses of pods are %s", how, got)
		}
		if text := w.read(ours); !strings.Contains(text, subnet) {
			t.Errorf("%s: the network is %s, want %s", how, text, subnet)
		}
		if left := w.read("/proc/sys/net/ipv4/ip_forward") == "0\n"; left != (how == "the daemon") {
			t.Errorf("%s: what was not to be repaired: %v", how, left)
		}
		if _, err := w.drift(true); err != nil {
			t.Error(err)
		}
		w.steady(how)
		if c := w.condition(health.PodSubnetsAgree); c.Status != health.True {
			t.Errorf("%s: the condition is %+v", how, c)
		}
	}
}
