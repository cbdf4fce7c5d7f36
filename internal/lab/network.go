package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

const forwardFile = "/proc/sys/net/ipv4/ip_forward"

// shared are the parameters of the kernel that no namespace keeps apart: what a machine sets, this box has too.
var shared = []string{
	forwardFile, "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/panic_on_oom", "/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_oops",
	"/proc/sys/kernel/keys/root_maxkeys", "/proc/sys/kernel/keys/root_maxbytes",
}

// kernelParameters reads them, so that Down can give them back.
func kernelParameters() map[string]string {
	values := map[string]string{}
	for _, path := range shared {
		if data, err := os.ReadFile(path); err == nil {
			values[path] = strings.TrimSpace(string(data))
		}
	}
	return values
}

// networkUp makes the bridge that machines and control plane meet on. Pods on two machines reach each other through it.
func (l *Lab) networkUp(ctx context.Context) error {
	if _, err := net.InterfaceByName(Bridge); err == nil {
		return nil
	}
	if taken, who := addressTaken(); taken {
		return fmt.Errorf("cannot make the lab's network: %s has an address in 10.77.0.0/24", who)
	}
	if err := l.change(func(r *record) {
		if r.Parameters == nil {
			r.Parameters = kernelParameters()
		}
	}); err != nil {
		return err
	}
	if err := os.WriteFile(forwardFile, []byte("1"), 0o644); err != nil {
		return fmt.Errorf("cannot allow forwarding: %w", err)
	}
	for _, args := range [][]string{
		{"link", "add", Bridge, "type", "bridge"},
		{"addr", "add", HostIP + "/24", "dev", Bridge},
		{"link", "set", Bridge, "up"},
	} {
		if _, err := run(ctx, "ip", args...); err != nil {
			return fmt.Errorf("cannot make the lab's network: %w", err)
		}
	}
	return nil
}

func addressTaken() (bool, string) {
	_, lab, _ := net.ParseCIDR("10.77.0.0/24") // a constant
	interfaces, err := net.Interfaces()
	if err != nil {
		return false, ""
	}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addresses {
			if ip, _, err := net.ParseCIDR(a.String()); err == nil && lab.Contains(ip) {
				return true, i.Name
			}
		}
	}
	return false, ""
}

// networkDown removes the bridge, and with it all its routes.
func (l *Lab) networkDown(ctx context.Context, r record) error {
	var errs []error
	if _, err := net.InterfaceByName(Bridge); err == nil {
		_, err := run(ctx, "ip", "link", "del", Bridge)
		errs = append(errs, err)
	}
	for path, value := range r.Parameters {
		errs = append(errs, os.WriteFile(path, []byte(value), 0o644))
	}
	return errors.Join(errs...)
}
