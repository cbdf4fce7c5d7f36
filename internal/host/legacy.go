package host

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// What iptables-legacy asks the kernel with, of either family (linux/netfilter_ipv4/ip_tables.h):
// about a table, and for its rules.
const (
	getInfo    = 64
	getEntries = 65
)

// Layouts of struct ipt_getinfo, which is a name, hooks, offsets, and how many rules there are of
// which size in all; and of struct ipt_get_entries, which is a name, that size, and the rules.
const (
	infoLength    = 32 + 4 + 5*4 + 5*4 + 4 + 4
	infoSize      = infoLength - 4
	entriesSize   = 32
	entriesHeader = 40
)

// legacyFamily is a family of iptables-legacy. In each rule it has, at these places, the offset of
// the next rule and the counters of packets and bytes (struct ipt_entry, ip6t_entry).
type legacyFamily struct {
	domain, level  int
	next, counters int
}

const countersLength = 2 * 8

func legacyFamilyOf(family string) legacyFamily {
	if family == "ip6" {
		return legacyFamily{unix.AF_INET6, unix.IPPROTO_IPV6, 142, 152}
	}
	return legacyFamily{unix.AF_INET, unix.IPPROTO_IP, 90, 96}
}

// LegacyTable implements Kernel. The text is a digest of the rules without their counters.
func (linux) LegacyTable(family string) (string, error) {
	f := legacyFamilyOf(family)
	socket, err := unix.Socket(f.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(socket)
		var text string
		if text, err = f.digest(socket); err == nil {
			return text, nil
		}
	}
	return "", fmt.Errorf("cannot ask for the rules of iptables-legacy: %w", err)
}

// digest asks for the table and for its rules, again when they have changed between the two.
func (f legacyFamily) digest(socket int) (string, error) {
	const tries = 5
	var err error
	for range tries {
		info := make([]byte, infoLength)
		copy(info, "filter")
		err = getSockopt(socket, f.level, getInfo, info)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOPROTOOPT) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		size := int(binary.NativeEndian.Uint32(info[infoSize:]))
		entries := make([]byte, entriesHeader+size)
		copy(entries, "filter")
		copy(entries[entriesSize:], info[infoSize:])
		err = getSockopt(socket, f.level, getEntries, entries)
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return "", err
		}
		f.uncount(entries[entriesHeader:])
		sum := sha256.Sum256(append(info, entries...))
		return fmt.Sprintf("%x", sum[:16]), nil
	}
	return "", err
}

// uncount takes the counters out of rules.
func (f legacyFamily) uncount(rules []byte) {
	for len(rules) >= f.counters+countersLength {
		clear(rules[f.counters : f.counters+countersLength])
		next := int(binary.NativeEndian.Uint16(rules[f.next:]))
		if next == 0 || next > len(rules) {
			return
		}
		rules = rules[next:]
	}
}
