package host

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// Flags of a route (linux/ipv6_route.h): by default, and learned by the kernel from a router's
// advertisement. Routes of systemd-networkd and NetworkManager, which listen themselves, have not
// the second one.
const (
	rtfDefault  = 0x00010000
	rtfAddrConf = 0x00040000
)

// advertised lists the network interfaces with a default route of IPv6 that the kernel has learned
// from a router's advertisement and gives up when it forwards (accept_ra is 1; Linux,
// networking/ip-sysctl).
func (h *Host) advertised() ([]string, error) {
	routes, err := h.ReadFile("/proc/net/ipv6_route")
	if errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the routes of IPv6: %w", err)
	}
	var found []string
	for line := range strings.Lines(string(routes)) {
		words := strings.Fields(line)
		if len(words) < 10 || words[1] != "00" {
			continue
		}
		name := words[9]
		flags, err := strconv.ParseUint(words[8], 16, 32)
		if err != nil || flags&rtfDefault == 0 || flags&rtfAddrConf == 0 ||
			slices.Contains(found, name) {
			continue
		}
		accepts, err := h.ReadFile("/proc/sys/net/ipv6/conf/" + name + "/accept_ra")
		if err == nil && strings.TrimSpace(string(accepts)) == "1" {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found, nil
}
