package lab

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// The addresses of a dual-stack lab. They are unique local addresses (RFC 4193).
const (
	HostIP6      = "fd77::1"
	PodCIDR6     = "fd77:244::/48"
	ServiceCIDR6 = "fd77:96::/112"
)

// parameters6 is the directory of the kernel's IPv6 parameters by interface.
const parameters6 = "/proc/sys/net/ipv6/conf"

// BoxHasIPv6 reports whether the host supports a dual-stack lab.
func BoxHasIPv6() bool {
	for _, which := range []string{"all", "default"} {
		off, err := os.ReadFile(filepath.Join(parameters6, which, "disable_ipv6"))
		if err != nil || strings.TrimSpace(string(off)) != "0" {
			return false
		}
	}
	return true
}

// HasIPv6 reports whether the lab is dual-stack.
func (l *Lab) HasIPv6() bool {
	r, err := l.load()
	return err == nil && r.IPv6
}

// needIPv6 returns an error if the lab is to be dual-stack and cannot.
func (l *Lab) needIPv6() error {
	switch {
	case l.HasIPv6() || !l.WithIPv6:
		return nil
	case !BoxHasIPv6():
		return errors.New("cannot make a dual-stack lab: the host has IPv6 disabled " +
			"(net.ipv6.conf.all.disable_ipv6, net.ipv6.conf.default.disable_ipv6)")
	}
	if running, err := l.Running(); err != nil || len(running) > 0 {
		return errors.Join(err, errors.New("cannot make this lab dual-stack while it runs: "+
			"stop it first, with `flexlab down`"))
	}
	return nil
}

// networks returns the IPv4 network and, in a dual-stack lab, the IPv6 network, separated by a
// comma.
func (l *Lab) networks(four, six string) string {
	if l.HasIPv6() {
		return four + "," + six
	}
	return four
}

// IPv6 returns a machine's IPv6 address in a dual-stack lab.
func (m Machine) IPv6() string { return sixOf(m.IP) }

// sixOf returns the IPv6 address for an IPv4 address: fd77::11 for 10.77.0.11.
func sixOf(ip string) string { return "fd77::" + ip[strings.LastIndexByte(ip, '.')+1:] }

// network6 returns the IPv6 part of a machine's network configuration. Routers find the next hop by
// its link-local address.
func (l *Lab) network6(m Machine) string {
	if !l.HasIPv6() {
		return "LinkLocalAddressing=no\n"
	}
	return "LinkLocalAddressing=ipv6\n[Address]\nAddress=" + m.IPv6() + "/64\n" +
		"DuplicateAddressDetection=none\n" +
		"[Route]\nGateway=" + HostIP6 + "\n"
}

// forwarding6 is the parameter that enables IPv6 forwarding on the host.
const forwarding6 = parameters6 + "/all/forwarding"

// parametersOfIPv6 returns the files of the parameters that forwardIPv6 changes.
func (l *Lab) parametersOfIPv6() []string {
	if !l.WithIPv6 {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(parameters6, "*", "forwarding"))
	if err != nil {
		panic("internal error: " + err.Error()) // the pattern is a constant
	}
	return files
}

// forwardIPv6 enables IPv6 forwarding. The kernel then sets that parameter of every interface, and
// a forwarding interface learns no routes from router advertisements, so all others are restored.
func (l *Lab) forwardIPv6() error {
	if !l.WithIPv6 {
		return nil
	}
	r, err := l.load()
	if err != nil {
		return err
	}
	values := map[string]string{}
	for _, file := range l.parametersOfIPv6() {
		if value, known := r.Parameters[file]; known {
			values[file] = value
		}
	}
	values[forwarding6] = "1"
	return restoreParameters(values)
}
