package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
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

// FilterRule is a rule of a chain, which may accept what it matches.
type FilterRule struct {
	Comment string
	Accepts bool
	Handle  uint64
}

// tableFamilies are the families of nftables by their names in nft(8), filterFamilies those that
// filter IP.
var (
	tableFamilies = map[uint8]string{
		unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_INET: "inet",
		unix.NFPROTO_ARP: "arp", unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_NETDEV: "netdev",
	}
	filterFamilies = []string{"inet", "ip", "ip6"}
)

func (linux) Filters() ([]Filter, error) {
	var list []Filter
	for _, family := range filterFamilies {
		found, err := readFilters(family, unix.NLM_F_DUMP)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

func (linux) Filter(family, table, name string) (Filter, error) {
	if !slices.Contains(filterFamilies, family) {
		return Filter{}, fmt.Errorf("internal error: the family %s does not filter IP", family)
	}
	found, err := readFilters(family, 0,
		attribute(unix.NFTA_CHAIN_TABLE, table), attribute(unix.NFTA_CHAIN_NAME, name))
	if err != nil || len(found) == 0 {
		return Filter{}, except(err, unix.ENOENT)
	}
	return found[0], nil
}

// readFilters reads those of the chains asked for that filter packets of IP, with their rules.
func readFilters(family string, flags int, which ...*nl.RtAttr) ([]Filter, error) {
	found, err := askNFT(unix.NFT_MSG_GETCHAIN, flags, family, which...)
	if err != nil {
		return nil, fmt.Errorf("cannot read the chains of nftables: %w", err)
	}
	var list []Filter
	for _, data := range found {
		f := readFilter(family, data)
		if f.Hook == "" {
			continue
		}
		if err := f.readRules(); err != nil {
			return nil, err
		}
		list = append(list, f)
	}
	return list, nil
}

// readRules adds the rules of the chain, and what they say on whether it drops.
func (f *Filter) readRules() error {
	found, err := askNFT(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, f.Family,
		attribute(unix.NFTA_RULE_TABLE, f.Table), attribute(unix.NFTA_RULE_CHAIN, f.Name))
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

// askNFT asks nf_tables one question. "" is any family.
func askNFT(message, flags int, family string, which ...*nl.RtAttr) ([][]byte, error) {
	for number, name := range tableFamilies {
		if name == family {
			return askNetfilter(nfTables|message, flags, number, which...)
		}
	}
	return nil, fmt.Errorf("internal error: unknown family %s", family)
}

// nfTables is the subsystem of netfilter that a message to nf_tables names.
const nfTables = unix.NFNL_SUBSYS_NFTABLES << 8

// noSubsystem are the errors of a kernel without a subsystem.
var noSubsystem = []error{unix.EINVAL, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT}

// askNetfilter asks a subsystem of netfilter one question; one that the kernel does not have has
// nothing to tell. A dump that was disturbed is asked for again.
func askNetfilter(message, flags int, family uint8, which ...*nl.RtAttr) ([][]byte, error) {
	const tries = 5
	var found [][]byte
	var err error
	for range tries {
		request := netfilterRequest(message, flags, family, which...)
		found, err = request.Execute(unix.NETLINK_NETFILTER, 0)
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return found, except(err, noSubsystem...)
}

func netfilterRequest(message, flags int, family uint8, which ...*nl.RtAttr) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(message, flags)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: unix.NFNETLINK_V0})
	for _, a := range which {
		request.AddData(a)
	}
	return request
}

// attribute is an attribute of a request that is a name.
func attribute(kind int, name string) *nl.RtAttr {
	return nl.NewRtAttr(kind, nl.ZeroTerminated(name))
}

// message are the attributes of a message, which come after its header.
func message(data []byte) map[uint16][]byte {
	return attributes(data[min(nl.SizeofNfgenmsg, len(data)):])
}

// attributes are those of a message or of a nested attribute, by type.
func attributes(data []byte) map[uint16][]byte {
	list, err := nl.ParseRouteAttr(data)
	if err != nil {
		return nil
	}
	found := make(map[uint16][]byte)
	for _, a := range list {
		found[a.Attr.Type&nl.NLA_TYPE_MASK] = a.Value
	}
	return found
}

func text(b []byte) string { return strings.TrimRight(string(b), "\x00") }

// number reads a number of 32 bits; false where there is none.
func number(b []byte) (uint32, bool) {
	if len(b) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b), true
}

// readFilter reads a chain; without a Hook when it is none that filters packets of IP.
func readFilter(family string, data []byte) Filter {
	a := message(data)
	hook, hooked := number(attributes(a[unix.NFTA_CHAIN_HOOK])[unix.NFTA_HOOK_HOOKNUM])
	if !hooked || text(a[unix.NFTA_CHAIN_TYPE]) != "filter" {
		return Filter{}
	}
	f := Filter{
		Family: family, Table: text(a[unix.NFTA_CHAIN_TABLE]), Name: text(a[unix.NFTA_CHAIN_NAME]),
	}
	switch hook {
	case unix.NF_INET_LOCAL_IN:
		f.Hook = "input"
	case unix.NF_INET_FORWARD:
		f.Hook = "forward"
	case unix.NF_INET_LOCAL_OUT:
		f.Hook = "output"
	}
	policy, told := number(a[unix.NFTA_CHAIN_POLICY])
	f.Drops = told && policy == nfDrop
	return f
}

// The verdicts NF_DROP and NF_ACCEPT (linux/netfilter.h).
const (
	nfDrop   = 0
	nfAccept = 1
)

// readRule reads a rule, and whether it stops whatever comes to it.
func readRule(data []byte) (r FilterRule, stops bool) {
	a := message(data)
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
	return number(attributes(value[unix.NFTA_DATA_VERDICT])[unix.NFTA_VERDICT_CODE])
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
