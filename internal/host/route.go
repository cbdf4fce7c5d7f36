package host

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
)

// Flags of a route (linux/route.h, linux/ipv6_route.h): it is up, it rejects, it is there by
// default, and the kernel has learned it from a router's advertisement. Routes of systemd-networkd
// and NetworkManager, which listen themselves, have not the last one.
const (
	rtfUp       = 0x1
	rtfReject   = 0x200
	rtfDefault  = 0x10000
	rtfAddrConf = 0x40000
)

// isDefault6 reports whether a row of /proc/net/ipv6_route is a default route that has all of some
// flags and none of others.
func isDefault6(row []string, all, none uint64) bool {
	const anywhere = "00000000000000000000000000000000"
	if len(row) < 10 || row[0] != anywhere || row[1] != "00" {
		return false
	}
	flags, err := strconv.ParseUint(row[8], 16, 32)
	return err == nil && flags&all == all && flags&none == 0
}

// routed reports whether there is a default route of either family; nil when that is not known. The
// kernel itself keeps a default route of IPv6 that rejects everything.
func (h *Host) routed() *bool {
	four, err := h.rows("/proc/net/route")
	six, err6 := h.rows("/proc/net/ipv6_route")
	if err != nil || except(err6, fs.ErrNotExist) != nil {
		return nil
	}
	// Iface Destination Gateway Flags RefCnt Use Metric Mask
	found := slices.ContainsFunc(four, func(row []string) bool {
		return len(row) > 7 && row[1] == "00000000" && row[7] == "00000000"
	}) || slices.ContainsFunc(six, func(row []string) bool {
		return isDefault6(row, rtfUp, rtfReject)
	})
	return &found
}

// advertised lists the network interfaces with a default route of IPv6 that the kernel has learned
// from a router's advertisement and gives up when it forwards (accept_ra is 1; Linux,
// networking/ip-sysctl).
func (h *Host) advertised() ([]string, error) {
	rows, err := h.rows("/proc/net/ipv6_route")
	if errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the routes of IPv6: %w", err)
	}
	var found []string
	for _, row := range rows {
		if isDefault6(row, rtfDefault|rtfAddrConf, 0) &&
			h.text("/proc/sys/net/ipv6/conf/"+row[9]+"/accept_ra") == "1" {
			found = append(found, row[9])
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
