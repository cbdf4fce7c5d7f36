package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Filter is a base chain of nf_tables that filters packets to, from or across this machine. The
// rules of iptables are in such chains too, except with its legacy variant.
type Filter struct {
	Family, Table, Name, Hook string // a family is ip, ip6 or inet, a hook input, forward or output
	Drops                     bool   // the chain stops packets that no rule of it accepts
	Rules                     []FilterRule
}

// FilterRule is one rule of a chain. Accepts is set if it may accept the packets that it matches.
type FilterRule struct {
	Comment string
	Accepts bool
	Handle  uint64
}

func (h *Host) filter(family, table, name string) (Filter, error) {
	list, err := h.Kernel.Filters()
	i := slices.IndexFunc(list, func(f Filter) bool {
		return f.Family == family && f.Table == table && f.Name == name
	})
	if err != nil || i < 0 {
		return Filter{}, err
	}
	return list[i], nil
}

func (linux) Filters() ([]Filter, error) {
	chains, err := readChains(func(c *nftables.Chain) bool {
		return slices.Contains([]string{"inet", "ip", "ip6"}, tableFamilies[c.Table.Family]) &&
			c.Type == nftables.ChainTypeFilter && c.Hooknum != nil && hooks[*c.Hooknum] != ""
	})
	list := make([]Filter, len(chains))
	for i, c := range chains {
		f := &list[i]
		*f = Filter{
			Family: tableFamilies[c.Table.Family], Table: c.Table.Name, Name: c.Name,
			Hook: hooks[*c.Hooknum],
		}
		stops := false
		for _, r := range c.rules {
			var rule FilterRule
			rule, stops = readRule(r)
			f.Rules = append(f.Rules, rule)
		}
		// The last rule may stop every remaining packet.
		f.Drops = stops || c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
	}
	return list, err
}

// tableFamilies maps the families of nf_tables to their names in nft(8).
var tableFamilies = map[nftables.TableFamily]string{
	nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6",
	nftables.TableFamilyINet: "inet", nftables.TableFamilyARP: "arp",
	nftables.TableFamilyBridge: "bridge", nftables.TableFamilyNetdev: "netdev",
}

// hooks maps the hooks at which a machine filters packets to their names in nft(8).
var hooks = map[nftables.ChainHook]string{
	*nftables.ChainHookInput: "input", *nftables.ChainHookForward: "forward",
	*nftables.ChainHookOutput: "output",
}

type chainRules struct {
	*nftables.Chain
	rules []*nftables.Rule
}

func readChains(wanted func(*nftables.Chain) bool) (list []chainRules, err error) {
	err = readNFT(unix.NFNL_SUBSYS_NFTABLES, func(nft *nftables.Conn) error {
		chains, err := nft.ListChains()
		list = nil
		for _, c := range chains {
			if !wanted(c) {
				continue
			}
			rules, err := nft.GetRules(c.Table, c)
			if err != nil {
				return fmt.Errorf("cannot read the rules of chain %s of nftables: %w", c.Name, err)
			}
			list = append(list, chainRules{c, rules})
		}
		return err
	})
	return list, err
}

const answerLimit = 10 * time.Second // bounds the wait for all answers of the kernel to one reading

// withNFT calls use with a client of nf_tables that keeps one socket for all calls.
func withNFT(use func(*nftables.Conn) error) error {
	limit := nftables.WithSockOptions(func(c *netlink.Conn) error {
		return c.SetReadDeadline(time.Now().Add(answerLimit))
	})
	nft, err := nftables.New(nftables.AsLasting(), limit)
	if err != nil {
		return err
	}
	return errors.Join(use(nft), nft.CloseLasting())
}

// readNFT reads again until nothing has changed meanwhile: the dump of a changing table is
// incomplete. On a kernel without the subsystem it reads nothing.
func readNFT(subsystem int, read func(*nftables.Conn) error) error {
	const tries = 5
	before, err := nftGeneration(subsystem)
	if err != nil {
		return except(err, noSubsystem...)
	}
	for range tries {
		failed := withNFT(read)
		after, err := nftGeneration(subsystem)
		if after == before || err != nil {
			return errors.Join(failed, err)
		}
		before = after
	}
	return errors.New("the tables of nftables change all the time")
}

// noSubsystem are the errors of a kernel that lacks a subsystem of netfilter.
var noSubsystem = []error{unix.EINVAL, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT}

// nftGeneration returns the number of changes to a subsystem of netfilter.
func nftGeneration(subsystem int) (uint32, error) {
	found, err := askKernel(unix.NETLINK_NETFILTER, uint16(subsystem<<8|unix.NFT_MSG_GETGEN), 0,
		make([]byte, 4)) // struct nfgenmsg, of version 0
	if err != nil {
		return 0, fmt.Errorf("cannot read the generation of nftables: %w", err)
	}
	// Its number is the first attribute of the answer, after two headers of four bytes.
	if len(found) != 1 || len(found[0].Data) < 12 {
		return 0, errors.New("nftables tells no generation")
	}
	return binary.BigEndian.Uint32(found[0].Data[8:]), nil
}

// askKernel sends one request through netlink and returns the answer.
func askKernel(family int, kind uint16, flags netlink.HeaderFlags, data []byte) (
	[]netlink.Message, error,
) {
	conn, err := netlink.Dial(family, nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerLimit)); err != nil {
		return nil, err
	}
	return conn.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | flags},
		Data:   data,
	})
}

// readRule converts a rule, and reports whether it stops every packet that reaches it.
func readRule(is *nftables.Rule) (r FilterRule, stops bool) {
	r = FilterRule{Handle: is.Handle, Comment: userComment(is.UserData)}
	matches, drops := false, false
	for _, e := range is.Exprs {
		switch e := e.(type) {
		case *expr.Counter, *expr.Log, *expr.Immediate:
		case *expr.Match:
			if comment, ok := e.Info.(*xt.Comment); ok {
				r.Comment = string(*comment)
			} else {
				matches = true
			}
		case *expr.Verdict:
			r.Accepts, drops = e.Kind == expr.VerdictAccept, e.Kind == expr.VerdictDrop
		case *expr.Reject:
			drops = true
		case *expr.Target:
			drops = e.Name == "REJECT"
			matches = matches || !drops
		default:
			matches = true
		}
	}
	return r, drops && !matches
}

// userComment returns the comment that the nft program stores with a rule: the first of its records
// of type, length and value. Other programs store their own data there.
func userComment(data []byte) string {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		end := 2 + int(data[1])
		if data[0] == 0 {
			return string(bytes.TrimRight(data[2:end], "\x00"))
		}
		data = data[end:]
	}
	return ""
}

// setTable loads a table from its file, or removes it. The file replaces the table whole.
func (h *Host) setTable(ctx context.Context, to state.Table) error {
	return h.change(state.Describe(state.Change{To: to}), func() error {
		if to.Rules == 0 {
			return h.Kernel.Clear(ctx, state.Residue{Kind: state.Tables}, []string{to.Name})
		}
		to.File = h.path(to.File)
		err := h.Kernel.LoadTable(ctx, to)
		if errors.Is(err, fs.ErrNotExist) {
			d := h.distro()
			err = fmt.Errorf("%w; install it: %s %s", err, d.Manager.Fetch, d.NFTables)
		}
		return err
	})
}

func (l linux) LoadTable(ctx context.Context, to state.Table) error {
	_, err := l.run(ctx, "", "nft", "-f", to.File)
	return err
}

func (linux) Rules(table string) (int, error) {
	chains, err := readChains(func(c *nftables.Chain) bool { return tableName(c.Table) == table })
	n := 0
	for _, c := range chains {
		n += len(c.rules)
	}
	return n, err
}

func tableName(t *nftables.Table) string { return tableFamilies[t.Family] + " " + t.Name }

// findTables finds the tables of a name through the kernel, as the nft program is often missing.
func (linux) findTables(_ context.Context, name string) ([]string, error) {
	tables, err := listTables()
	var found []string
	for _, t := range tables {
		if t.Name == name {
			found = append(found, tableName(t))
		}
	}
	return found, err
}

// clearTables deletes tables with their contents, in one transaction.
func (linux) clearTables(_ context.Context, _ string, found []string) error {
	tables, err := listTables()
	if err != nil {
		return err
	}
	return deleteTables(slices.DeleteFunc(tables, func(t *nftables.Table) bool {
		return !slices.Contains(found, tableName(t))
	}))
}

// listTables lists all tables; none where the kernel has no nftables.
func listTables() (list []*nftables.Table, err error) {
	err = readNFT(unix.NFNL_SUBSYS_NFTABLES, func(nft *nftables.Conn) error {
		list, err = nft.ListTables()
		return err
	})
	return list, err
}

func deleteTables(tables []*nftables.Table) error {
	return withNFT(func(nft *nftables.Conn) error {
		for _, t := range tables {
			nft.DelTable(t)
		}
		return nft.Flush()
	})
}
