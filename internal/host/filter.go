package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Filter is a base chain of nf_tables through which packets to, from or across this machine go. The
// rules of iptables are in such chains too, but for those of iptables-legacy.
type Filter struct {
	// Family is ip, ip6 or inet; Hook is input, forward or output.
	Family, Table, Name, Hook string
	// Drops tells that the chain stops what no rule of it accepts.
	Drops bool
	Rules []FilterRule
}

// FilterRule is a rule of a chain.
type FilterRule struct {
	Comment string
	// Accepts tells that the rule accepts what it matches.
	Accepts bool
	Handle  uint64
}

// filterFamilies are the families that filter IP, by their numbers in the kernel.
var filterFamilies = [...]struct {
	name   string
	number uint8
}{
	{"inet", unix.NFPROTO_INET}, {"ip", unix.NFPROTO_IPV4}, {"ip6", unix.NFPROTO_IPV6},
}

// Filters implements Kernel.
func (linux) Filters() ([]Filter, error) {
	var list []Filter
	for _, family := range filterFamilies {
		found, err := askNFT(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, family.number)
		if err != nil {
			return nil, fmt.Errorf("cannot list the chains of nftables: %w", err)
		}
		for _, data := range found {
			f, isFilter := readFilter(family.name, data)
			if !isFilter {
				continue
			}
			if err := f.readRules(family.number); err != nil {
				return nil, err
			}
			list = append(list, f)
		}
	}
	return list, nil
}

// Filter implements Kernel.
func (linux) Filter(family, table, name string) (Filter, error) {
	for _, known := range filterFamilies {
		if known.name != family {
			continue
		}
		found, err := askNFT(unix.NFT_MSG_GETCHAIN, 0, known.number,
			nl.NewRtAttr(unix.NFTA_CHAIN_TABLE, nl.ZeroTerminated(table)),
			nl.NewRtAttr(unix.NFTA_CHAIN_NAME, nl.ZeroTerminated(name)))
		if errors.Is(err, unix.ENOENT) || err == nil && len(found) == 0 {
			return Filter{}, nil
		}
		if err != nil {
			return Filter{}, fmt.Errorf("cannot read chain %s of nftables: %w", name, err)
		}
		f, isFilter := readFilter(family, found[0])
		if !isFilter {
			return Filter{}, nil
		}
		return f, f.readRules(known.number)
	}
	return Filter{}, fmt.Errorf("internal error: unknown family %s", family)
}

// readRules adds the rules of the chain, and what they say on whether it drops.
func (f *Filter) readRules(family uint8) error {
	found, err := askNFT(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, family,
		nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(f.Table)),
		nl.NewRtAttr(unix.NFTA_RULE_CHAIN, nl.ZeroTerminated(f.Name)))
	if err != nil {
		return fmt.Errorf("cannot read the rules of chain %s of nftables: %w", f.Name, err)
	}
	stops := false
	for _, data := range found {
		var r FilterRule
		r, stops = readRule(data)
		f.Rules = append(f.Rules, r)
	}
	f.Drops = f.Drops || stops // the last rule stops all that is left
	return nil
}

// askNFT asks nf_tables one question; a kernel without it has nothing to tell.
func askNFT(message, flags int, family uint8, attributes ...*nl.RtAttr) ([][]byte, error) {
	return askNetfilter(unix.NFNL_SUBSYS_NFTABLES, message, flags, family, attributes...)
}

// askNetfilter asks a subsystem of netfilter one question; one that the kernel does not have has
// nothing to tell. A dump that was disturbed is asked for again.
func askNetfilter(
	subsystem, message, flags int, family uint8, attributes ...*nl.RtAttr,
) ([][]byte, error) {
	const tries = 5
	var found [][]byte
	var err error
	for range tries {
		request := netfilterRequest(subsystem, message, flags, family, attributes...)
		found, err = request.Execute(unix.NETLINK_NETFILTER, 0)
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if lacksNFT(err) {
		return nil, nil
	}
	return found, err
}

// nftRequest is a message to nf_tables, and netfilterRequest one to a subsystem of netfilter.
func nftRequest(message, flags int, family uint8, attributes ...*nl.RtAttr) *nl.NetlinkRequest {
	return netfilterRequest(unix.NFNL_SUBSYS_NFTABLES, message, flags, family, attributes...)
}

func netfilterRequest(
	subsystem, message, flags int, family uint8, attributes ...*nl.RtAttr,
) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(subsystem<<8|message, flags)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: unix.NFNETLINK_V0})
	for _, a := range attributes {
		request.AddData(a)
	}
	return request
}

// lacksNFT tells whether an error is that of a kernel without nf_tables.
func lacksNFT(err error) bool {
	for _, none := range []error{unix.EINVAL, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT} {
		if errors.Is(err, none) {
			return true
		}
	}
	return false
}

// headerLength is the length of struct nfgenmsg, which comes before the attributes.
const headerLength = 4

// attributes are those of a message or of a nested attribute, by type.
func attributes(data []byte) map[uint16][]byte {
	list, err := nl.ParseRouteAttr(data)
	if err != nil {
		return nil
	}
	found := make(map[uint16][]byte, len(list))
	for _, a := range list {
		found[a.Attr.Type&nl.NLA_TYPE_MASK] = a.Value
	}
	return found
}

func text(b []byte) string { return strings.TrimRight(string(b), "\x00") }

// readFilter reads a chain; false when it is none that filters packets of IP.
func readFilter(family string, data []byte) (f Filter, isFilter bool) {
	if len(data) < headerLength {
		return f, false
	}
	a := attributes(data[headerLength:])
	hook := attributes(a[unix.NFTA_CHAIN_HOOK])[unix.NFTA_HOOK_HOOKNUM]
	if len(hook) != 4 || text(a[unix.NFTA_CHAIN_TYPE]) != "filter" {
		return f, false
	}
	table, name := a[unix.NFTA_CHAIN_TABLE], a[unix.NFTA_CHAIN_NAME]
	f = Filter{Family: family, Table: text(table), Name: text(name)}
	switch binary.BigEndian.Uint32(hook) {
	case unix.NF_INET_LOCAL_IN:
		f.Hook = "input"
	case unix.NF_INET_FORWARD:
		f.Hook = "forward"
	case unix.NF_INET_LOCAL_OUT:
		f.Hook = "output"
	}
	policy := a[unix.NFTA_CHAIN_POLICY]
	f.Drops = len(policy) == 4 && binary.BigEndian.Uint32(policy) == nfDrop
	return f, f.Hook != ""
}

// The verdicts NF_DROP and NF_ACCEPT (linux/netfilter.h).
const (
	nfDrop   = 0
	nfAccept = 1
)

// readRule reads a rule, and whether it stops whatever comes to it.
func readRule(data []byte) (r FilterRule, stops bool) {
	if len(data) < headerLength {
		return r, false
	}
	a := attributes(data[headerLength:])
	if handle := a[unix.NFTA_RULE_HANDLE]; len(handle) == 8 {
		r.Handle = binary.BigEndian.Uint64(handle)
	}
	r.Comment = userComment(a[unix.NFTA_RULE_USERDATA])
	expressions, _ := nl.ParseRouteAttr(a[unix.NFTA_RULE_EXPRESSIONS])
	matches, drops := false, false
	for _, e := range expressions {
		parts := attributes(e.Value)
		name, body := text(parts[unix.NFTA_EXPR_NAME]), attributes(parts[unix.NFTA_EXPR_DATA])
		switch {
		case name == "counter", name == "log":
		case name == "match" && text(body[unix.NFTA_MATCH_NAME]) == "comment":
			comment, _, _ := bytes.Cut(body[unix.NFTA_MATCH_INFO], []byte{0})
			r.Comment = string(comment)
		case name == "immediate":
			verdict, ok := verdict(body)
			r.Accepts, drops = ok && verdict == nfAccept, ok && verdict == nfDrop
		case name == "reject", name == "target" && text(body[unix.NFTA_TARGET_NAME]) == "REJECT":
			drops = true
		default:
			matches = true
		}
	}
	return r, drops && !matches
}

// verdict is the verdict that an immediate expression gives; false when it gives none.
func verdict(body map[uint16][]byte) (uint32, bool) {
	value := attributes(body[unix.NFTA_IMMEDIATE_DATA])
	code := attributes(value[unix.NFTA_DATA_VERDICT])[unix.NFTA_VERDICT_CODE]
	if len(code) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(code), true
}

// userComment is the comment that the program nft keeps with a rule: the first of its records of
// type, length and value.
func userComment(data []byte) string {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		value := data[2 : 2+data[1]]
		if data[0] == 0 {
			return text(value)
		}
		data = data[2+data[1]:]
	}
	return ""
}
