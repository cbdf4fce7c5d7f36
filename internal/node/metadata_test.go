package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// network is a network namespace of its own, in which functions run.
type network struct {
	t    *testing.T
	path string
	jobs chan func()
}

// newNetwork makes a network namespace that ends with the test.
func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{t: t, jobs: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, and its namespace with it
		n.path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		ready <- unix.Unshare(unix.CLONE_NEWNET)
		for job := range n.jobs {
			job()
		}
	}()
	if err := <-ready; err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { close(n.jobs) })
	n.run("ip link set lo up; sysctl -qw net.ipv6.conf.default.accept_dad=0")
	return n
}

func (n *network) do(job func()) {
	done := make(chan bool)
	n.jobs <- func() { defer close(done); job() }
	<-done
}

// run runs commands, one a line.
func (n *network) run(commands string) {
	n.t.Helper()
	n.do(func() {
		if out, err := exec.Command("/bin/sh", "-ec", commands).CombinedOutput(); err != nil {
			n.t.Fatalf("%s: %v: %s", commands, err, out)
		}
	})
}

// listen accepts connections at addresses.
func (n *network) listen(addresses ...string) {
	n.t.Helper()
	for _, address := range addresses {
		n.do(func() {
			l, err := net.Listen("tcp", address)
			if err != nil {
				n.t.Fatal(err)
			}
			n.t.Cleanup(func() { _ = l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_ = c.Close()
				}
			}()
		})
	}
}

// dial connects and reports how that ends: "connected", "refused", or the error.
func (n *network) dial(address string) string {
	var err error
	n.do(func() {
		// A Dialer would race addresses in other threads.
		var addr *net.TCPAddr
		if addr, err = net.ResolveTCPAddr("tcp", address); err != nil {
			return
		}
		_, err = connect(addr)
	})
	switch {
	case err == nil:
		return "connected"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	}
	return err.Error()
}

// connect returns the size of the segments that the connection sends.
func connect(to *net.TCPAddr) (int, error) {
	family, address := unix.AF_INET6, unix.Sockaddr(nil)
	if ip := to.IP.To4(); ip != nil {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(ip)}
	} else {
		address = &unix.SockaddrInet6{Port: to.Port, Addr: [16]byte(to.IP)}
	}
	s, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(s)
	timeout := unix.Timeval{Sec: 3}
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
		return 0, err
	}
	if err := unix.Connect(s, address); err != nil {
		return 0, err
	}
	return unix.GetsockoptInt(s, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
}

// cloud is a pod, the machine that it runs on and the network of the machine's cloud.
func cloud(t *testing.T) (pod, machine, outside *network) {
	for _, tool := range []string{"nft", "ip", "sysctl"} {
		if _, err := exec.LookPath(tool); err != nil || os.Geteuid() != 0 {
			t.Skip("the test needs root and ", tool)
		}
	}
	pod, machine, outside = newNetwork(t), newNetwork(t), newNetwork(t)
	machine.run("ip link add pod0 type veth peer name eth0 netns " + pod.path + `
ip link add eth0 type veth peer name eth0 netns ` + outside.path + `
ip addr add 10.244.0.1/24 dev pod0; ip addr add 10.0.0.4/24 dev eth0
ip -6 addr add fd00:244::1/64 dev pod0 nodad; ip -6 addr add fd00:1::4/64 dev eth0 nodad
ip link set pod0 up; ip link set eth0 up
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.route_localnet=1`)
	pod.run(`sysctl -qw net.ipv4.conf.all.route_localnet=1
ip addr add 10.244.0.2/24 dev eth0; ip -6 addr add fd00:244::2/64 dev eth0 nodad
ip link set eth0 up; ip route add default via 10.244.0.1; ip -6 route add default via fd00:244::1
ip addr add 127.9.9.1/32 dev eth0; ip addr del 127.0.0.1/8 dev lo
ip route add 127.0.0.1/32 via 10.244.0.1 src 10.244.0.2`)
	outside.run(`ip addr add 10.0.0.1/24 dev eth0; ip -6 addr add fd00:1::1/64 dev eth0 nodad
for a in 169.254.169.254 169.254.42.42 169.254.0.23 168.63.129.16 100.100.100.200
do ip addr add $a/32 dev lo; done
for a in fd00:ec2::254 fd20:ce::254; do ip -6 addr add $a/128 dev lo nodad; done
ip link set eth0 up
ip route add 10.244.0.0/24 via 10.0.0.4; ip -6 route add fd00:244::/64 via fd00:1::4`)
	machine.run("ip route add default via 10.0.0.1; ip -6 route add default via fd00:1::1")
	outside.listen("169.254.169.254:80", "169.254.169.254:53", "168.63.129.16:80",
		"168.63.129.16:32526", "168.63.129.16:443", "100.100.100.200:80", "[fd00:ec2::254]:80",
		"[fd20:ce::254]:80", "169.254.42.42:80", "169.254.0.23:80")
	machine.listen("127.0.0.1:10248")
	pod.listen("10.244.0.2:8080", "[fd00:244::2]:8080")
	return pod, machine, outside
}

// loadMetadata has the kernel take the table of a node, twice.
func (n *network) loadMetadata(c config.Config, f Facts) {
	n.t.Helper()
	d := Bind(Render(c, f), bindings())
	rules := find(n.t, d, state.PathKey(metadataFile)).Resource.(state.File).Content
	file := filepath.Join(n.t.TempDir(), "rules")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.run("nft -f " + file + "\nnft -f " + file)
	want := find(n.t, d, state.Table{Name: MetadataTable}.Key()).Resource
	n.do(func() {
		is, err := host.New("", nil).Observe(n.t.Context(), want.Key())
		if err != nil || !state.Equal(is, want) {
			n.t.Errorf("the kernel has %v, %v, want %v", is, err, want)
		}
	})
}

// Pods do not reach the metadata services, and reach what they reached before.
func TestMetadataTable(t *testing.T) {
	pod, machine, _ := cloud(t)
	guarded := []string{"169.254.169.254:80", "168.63.129.16:80", "168.63.129.16:32526",
		"100.100.100.200:80", "[fd00:ec2::254]:80", "[fd20:ce::254]:80", "169.254.42.42:80",
		"169.254.0.23:80"}
	open := []string{"168.63.129.16:443"}
	expect := func(n *network, want string, addresses ...string) {
		t.Helper()
		for _, address := range addresses {
			if got := n.dial(address); got != want {
				t.Errorf("%s: %s, want %s", address, got, want)
			}
		}
	}
	expect(pod, "connected", append(guarded, "169.254.169.254:53", "127.0.0.1:10248")...)
	probe := func(want error) {
		t.Helper()
		to := netip.AddrPortFrom(netip.MustParseAddr(MetadataAddress), 80)
		err := host.New("", nil).Kernel.DialFrom(t.Context(), pod.path, to)
		if !errors.Is(err, want) {
			t.Errorf("the agent's probe ends with %v, want %v", err, want)
		}
	}
	probe(nil)
	// a service mesh, whose proxy accepts each connection inside the pod
	pod.run(`nft add table ip mesh
nft add chain ip mesh output '{ type nat hook output priority -100; }'
nft add rule ip mesh output ip daddr 169.254.169.254 tcp dport 80 dnat to 10.244.0.2:8080`)
	probe(nil)

	machine.loadMetadata(base(), facts())
	probe(unix.ECONNREFUSED)
	pod.run("nft delete table ip mesh")
	probe(unix.ECONNREFUSED)
	expect(pod, "refused", append(guarded, "169.254.169.254:53")...)
	expect(pod, "connected", open...)
	expect(machine, "connected", guarded...)
	if got := pod.dial("127.0.0.1:10248"); got == "connected" || got == "refused" {
		t.Errorf("a pod at the machine's localhost: %s", got)
	}

	resolves := facts()
	resolves.MetadataResolver = true
	machine.loadMetadata(base(), resolves)
	expect(pod, "connected", "169.254.169.254:53")
	expect(pod, "refused", guarded...)

	// a metadata service on the machine itself
	machine.run("ip addr add 169.254.169.254/32 dev lo")
	machine.listen("169.254.169.254:80")
	expect(pod, "refused", "169.254.169.254:80")
	expect(machine, "connected", "169.254.169.254:80")

	// a port of the machine that leads to the pod, asked for through localhost
	machine.run(`nft add table ip portmap
nft add chain ip portmap output '{ type nat hook output priority -100; }'
nft add rule ip portmap output ip daddr 127.0.0.1 tcp dport 9090 dnat to 10.244.0.2:8080
nft add chain ip portmap post '{ type nat hook postrouting priority 100; }'
nft add rule ip portmap post ip saddr 127.0.0.1 ip daddr 10.244.0.2 masquerade`)
	expect(machine, "connected", "127.0.0.1:9090")
}

// Pods may reach them if that is configured. Connections have segments for the machine's MTU.
func TestMetadataAllowed(t *testing.T) {
	pod, machine, outside := cloud(t)
	machine.run("ip link set eth0 mtu 1400")
	c := base()
	c.Network.Metadata = config.MetadataAllow
	machine.loadMetadata(c, facts())
	if got := pod.dial("169.254.169.254:80"); got != "connected" {
		t.Errorf("a pod at the metadata service: %s", got)
	}
	for _, address := range []string{"10.244.0.2:8080", "[fd00:244::2]:8080"} {
		outside.do(func() {
			size, err := connect(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address)))
			if err != nil || size > 1400-40 {
				t.Errorf("segments to %s have %d bytes, %v", address, size, err)
			}
		})
	}
}
