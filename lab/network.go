package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
)

const (
	forwardFile = "/proc/sys/net/ipv4/ip_forward"
	// inotifyFile is the limit of inotify instances per user. Machines share their users with the
	// host, and the default is too low for 20 of them: some would have no network.
	inotifyFile  = "/proc/sys/fs/inotify/max_user_instances"
	inotifyLimit = 4096
)

// kernelParameters returns the current values of the host's parameters that the lab sets, so that
// Down can restore them. A machine's own settings are in its namespaces.
func kernelParameters(files ...string) map[string]string {
	values := map[string]string{}
	for _, file := range append(files, forwardFile, inotifyFile) {
		if data, err := os.ReadFile(file); err == nil {
			values[file] = strings.TrimSpace(string(data))
		}
	}
	return values
}

// raise sets a kernel parameter if it is lower.
func raise(file string, least int) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if is, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || is >= least {
		return err
	}
	return os.WriteFile(file, []byte(strconv.Itoa(least)), 0o644)
}

// restoreParameters sets kernel parameters: those of all interfaces first, since they set each
// interface's too. Those of removed interfaces are skipped.
func restoreParameters(values map[string]string) error {
	var errs []error
	for _, file := range slices.Sorted(maps.Keys(values)) {
		err := os.WriteFile(file, []byte(values[file]), 0o644)
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// bridgeAddress is the bridge's hardware address. By default a bridge takes the lowest one of its
// ports, which would change as machines are added and removed, and other machines would send to the
// old one for a while.
const bridgeAddress = "02:77:00:00:00:01"

// networkUp creates the bridge that connects the machines with each other and the control plane.
// Pods on different machines reach each other through it.
func (l *Lab) networkUp(ctx context.Context) error {
	if _, err := net.InterfaceByName(Bridge); err == nil {
		r, err := l.load()
		if err == nil && r.Parameters == nil {
			err = fmt.Errorf("cannot create the lab's network: %s exists and is not this lab's: stop "+
				"the other lab, or remove a leftover bridge with ip link del %[1]s", Bridge)
		}
		return err
	}
	addresses := []string{HostIP + "/24"}
	if l.WithIPv6 {
		addresses = append(addresses, HostIP6+"/64")
	}
	for _, address := range addresses {
		if taken, who := addressTaken(address); taken {
			return fmt.Errorf("cannot create the lab's network: %s has an address in the network of %s", who,
				address)
		}
	}
	if err := l.change(func(r *record) {
		if r.Parameters == nil {
			r.Parameters = kernelParameters(l.parametersOfIPv6()...)
		}
		r.IPv6 = l.WithIPv6
	}); err != nil {
		return err
	}
	if err := os.WriteFile(forwardFile, []byte("1"), 0o644); err != nil {
		return fmt.Errorf("cannot allow forwarding: %w", err)
	}
	if err := raise(inotifyFile, inotifyLimit); err != nil {
		return err
	}
	if err := l.forwardIPv6(); err != nil {
		return fmt.Errorf("cannot allow forwarding: %w", err)
	}
	commands := [][]string{{"link", "add", Bridge, "address", bridgeAddress, "type", "bridge"}}
	for _, address := range addresses {
		add := []string{"addr", "add", address, "dev", Bridge}
		if strings.Contains(address, ":") {
			add = append(add, "nodad") // otherwise it is unusable until a machine is attached
		}
		commands = append(commands, add)
	}
	for _, args := range append(commands, []string{"link", "set", Bridge, "up"}) {
		if _, err := run(ctx, "ip", args...); err != nil {
			return fmt.Errorf("cannot create the lab's network: %w", err)
		}
	}
	return nil
}

// addressTaken reports whether an interface has an address in the network of the given one, and
// returns its name.
func addressTaken(address string) (bool, string) {
	_, lab, _ := net.ParseCIDR(address) // valid, as it is a constant
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

// networkDown removes the bridge with its routes, unless another lab on the host, in another
// directory, created it.
func (l *Lab) networkDown(ctx context.Context, r record) error {
	if r.Parameters == nil { // networkUp records them before it creates the bridge
		return nil
	}
	var errs []error
	if _, err := net.InterfaceByName(Bridge); err == nil {
		_, err := run(ctx, "ip", "link", "del", Bridge)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, restoreParameters(r.Parameters))...)
}
