package host

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Only default routes that the kernel has learned itself, and gives up when it forwards, count.
func TestAdvertised(t *testing.T) {
	h := testHost(t)
	if found, err := h.advertised(); err != nil || found != nil {
		t.Errorf("without IPv6: %v, %v", found, err)
	}
	const none = "00000000000000000000000000000000"
	route := func(destination, flags, name string) string {
		return strings.Join([]string{destination, none, "00",
			"fe80000000000000000000000000fe01", "00000400", "00000001", "00000000", flags,
			name}, " ")
	}
	write(t, h, "/proc/net/ipv6_route", strings.Join([]string{
		route(none+" 00", "00450003", "eth1"),
		route(none+" 00", "00450003", "eth0.100"),
		route(none+" 00", "00450003", "eth0.100"),
		route(none+" 00", "00450003", "tolerant"),
		route(none+" 00", "00450003", "gone"),
		route(none+" 00", "00000003", "networkd"),
		route("20010db8000000000000000000000000 40", "00450003", "prefix"),
		route(none+" 00", "00200200", "lo"),
		"nonsense",
	}, "\n"))
	for name, accepts := range map[string]string{
		"eth1": "1\n", "eth0.100": "1\n", "tolerant": "2\n", "networkd": "0\n", "prefix": "1\n",
		"lo": "1\n",
	} {
		write(t, h, "/proc/sys/net/ipv6/conf/"+name+"/accept_ra", accepts)
	}
	found, err := h.advertised()
	if want := []string{"eth0.100", "eth1"}; err != nil || !slices.Equal(found, want) {
		t.Errorf("found %v, %v, want %v", found, err, want)
	}
}

// A router is a network interface of this machine, and one that sends to it.
type router struct {
	t *testing.T
	h *Host
}

const listening, sending = "flex0", "flex1"

// newRouter gives the test a network of its own with a router that advertises itself to the kernel.
func newRouter(t *testing.T) router {
	t.Helper()
	h := realFirewall(t)
	for link, target := range map[string]string{
		"proc/net": "/proc/thread-self/net", "proc/sys": "/proc/sys",
	} {
		place := filepath.Join(h.Root, link)
		if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, place); err != nil {
			t.Fatal(err)
		}
	}
	ip := func(args ...string) error {
		out, err := exec.Command("ip", append([]string{"link"}, args...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip link %v: %w: %s", args, err, out)
		}
		return nil
	}
	if err := ip("add", listening, "type", "veth", "peer", "name", sending); err != nil {
		t.Skip("this kernel has no pairs of interfaces: ", err)
	}
	if _, err := h.ReadFile("/proc/sys/net/ipv6/conf/" + listening + "/accept_ra"); err != nil {
		t.Skip("this kernel has no IPv6: ", err)
	}
	for _, name := range []string{listening, sending} {
		set(t, h, state.Change{To: state.Sysctl{
			Name: "net.ipv6.conf." + name + ".accept_dad", Value: "0",
		}})
		set(t, h, state.Change{To: state.Sysctl{
			Name: "net.ipv6.conf." + name + ".accept_ra", Value: "1",
		}})
	}
	for _, name := range []string{listening, sending} {
		if err := ip("set", name, "up"); err != nil {
			t.Fatal(err)
		}
	}
	return router{t, h}
}

// advertise sends advertisements, one whenever an address has come, until the kernel has its route.
func (r router) advertise() {
	r.t.Helper()
	news, err := netlink.Dial(unix.NETLINK_ROUTE,
		&netlink.Config{Groups: unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV6_ROUTE})
	if err != nil {
		r.t.Fatal(err)
	}
	defer news.Close()
	if err := news.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	socket, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		r.t.Fatal(err)
	}
	defer unix.Close(socket)
	err = unix.SetsockoptInt(socket, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255)
	if err != nil {
		r.t.Fatal(err)
	}
	for sent := r.send(socket); ; {
		if found, err := r.h.advertised(); err == nil && len(found) > 0 {
			return
		}
		list, err := news.Receive()
		if err != nil {
			r.t.Fatalf("the kernel has not learned the route: %v; sent: %v", err, sent)
		}
		if list[0].Header.Type == unix.RTM_NEWADDR {
			sent = r.send(socket)
		}
	}
}

// send sends an advertisement (RFC 4861, 4.2) to everybody.
func (r router) send(socket int) error {
	r.t.Helper()
	out, err := net.InterfaceByName(sending)
	if err != nil {
		r.t.Fatal(err)
	}
	message := make([]byte, 16)
	message[0], message[4] = 134, 64
	binary.BigEndian.PutUint16(message[6:], 1800) // for so many seconds it is a default router
	everybody := &unix.SockaddrInet6{ZoneId: uint32(out.Index)}
	copy(everybody.Addr[:], net.ParseIP("ff02::1"))
	return unix.Sendto(socket, message, 0, everybody)
}

// routed reports whether the kernel has a default route of IPv6.
func (r router) routed() bool {
	r.t.Helper()
	routes, err := r.h.ReadFile("/proc/net/ipv6_route")
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(routes)) {
		words := strings.Fields(line)
		if len(words) == 10 && words[1] == "00" && words[9] == listening {
			return true
		}
	}
	return false
}

// A machine that learns its default route from advertisements loses it when it forwards, and keeps
// it when it accepts them also then.
func TestForwardingKeepsTheRoute(t *testing.T) {
	const forwarding = "net.ipv6.conf.all.forwarding"
	for _, keeps := range []bool{true, false} {
		r := newRouter(t)
		r.advertise()
		found, err := r.h.advertised()
		if err != nil || !slices.Equal(found, []string{listening}) {
			t.Fatalf("found %v, %v", found, err)
		}
		if keeps {
			set(t, r.h, state.Change{To: state.Sysctl{
				Name: "net.ipv6.conf." + listening + ".accept_ra", Value: "2",
			}})
		}
		set(t, r.h, state.Change{To: state.Sysctl{Name: forwarding, Value: "1"}})
		if is := r.routed(); is != keeps {
			t.Errorf("accepts advertisements: %v, has its route: %v", keeps, is)
		}
	}
}
