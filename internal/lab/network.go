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

// kernelParameters are those of this box that the lab sets, as they are now, so that Down can give
// them back. What a machine sets is its own.
func kernelParameters() map[string]string {
	values := map[string]string{}
	if data, err := os.ReadFile(forwardFile); err == nil {
		values[forwardFile] = strings.TrimSpace(string(data))
	}
	return values
}

// bridgeAddress is the bridge's hardware address. Without one of its own a bridge takes the lowest
// of its ports: it would change as machines come and go, and those that are there would send to the
// former one for a while.
const bridgeAddress = "02:77:00:00:00:01"

// networkUp makes the bridge that machines and control plane meet on. Pods on two machines reach
// each other through it.
func (l *Lab) networkUp(ctx context.Context) error {
	if _, err := net.InterfaceByName(Bridge); err == nil {
		r, err := l.load()
		if err == nil && r.Parameters == nil {
			err = fmt.Errorf("cannot make the lab's network: %s is there, and not this lab's: stop "+
				"the other lab, or remove what one has left: ip link del %[1]s", Bridge)
		}
		return err
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
		{"link", "add", Bridge, "address", bridgeAddress, "type", "bridge"},
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

// networkDown removes the bridge, and with it all its routes. One that another lab of this box has
// made, in another directory, is not this lab's.
func (l *Lab) networkDown(ctx context.Context, r record) error {
	if r.Parameters == nil { // networkUp writes them down before it makes the bridge
		return nil
	}
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
