package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

func (h *Host) observeTable(name string) (state.Resource, error) {
	rules, err := h.Kernel.Rules(name)
	return state.Table{Name: name, Rules: rules}, err
}

// setTable loads a table from its file, or removes it. The file replaces the table whole.
func (h *Host) setTable(ctx context.Context, to state.Table) error {
	return h.change(state.Describe(state.Change{To: to}), func() error {
		if to.Rules == 0 {
			_, name, _ := strings.Cut(to.Name, " ")
			r := state.Residue{Kind: state.Tables, Match: name}
			return h.Kernel.Clear(ctx, r, []string{to.Name})
		}
		to.File = h.path(to.File)
		return h.Kernel.LoadTable(ctx, to)
	})
}

func (l linux) LoadTable(ctx context.Context, to state.Table) error {
	_, err := l.run(ctx, "", "nft", "-f", to.File)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; install it: apt-get install nftables", err)
	}
	return err
}

func (linux) Rules(table string) (int, error) {
	family, name, _ := strings.Cut(table, " ")
	found, err := askNFT(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, family,
		attribute(unix.NFTA_RULE_TABLE, name))
	if err = except(err, unix.ENOENT); err != nil {
		return 0, fmt.Errorf("cannot read the rules of nftables table %s: %w", table, err)
	}
	return len(found), nil
}

// table is a table of nftables.
type table struct {
	family uint8
	name   string
}

func (t table) String() string { return tableFamilies[t.family] + " " + t.name }

// findTables lists the nftables tables of a name, as "ip kube-proxy". It asks the kernel: the nft
// program is often missing where kube-proxy brings its own.
func (linux) findTables(_ context.Context, name string) ([]string, error) {
	tables, err := listTables()
	var found []string
	for _, t := range tables {
		if t.name == name {
			found = append(found, t.String())
		}
	}
	return found, err
}

// clearTables removes tables with all that is in them, in one transaction.
func (linux) clearTables(_ context.Context, _ string, found []string) error {
	tables, err := listTables()
	if err != nil {
		return err
	}
	var deletions []*nl.NetlinkRequest
	for _, t := range tables {
		if slices.Contains(found, t.String()) {
			deletions = append(deletions, netfilterRequest(nfTables|unix.NFT_MSG_DELTABLE,
				unix.NLM_F_ACK, t.family, attribute(unix.NFTA_TABLE_NAME, t.name)))
		}
	}
	if len(deletions) == 0 {
		return nil
	}
	return changeNFT(deletions)
}

// listTables lists all tables; none where the kernel has no nftables.
func listTables() ([]table, error) {
	found, err := askNetfilter(nfTables|unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, unix.NFPROTO_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("cannot list the tables of nftables: %w", err)
	}
	var list []table
	for _, data := range found {
		family := nl.DeserializeNfgenmsg(data).NfgenFamily
		list = append(list, table{family, text(message(data)[unix.NFTA_TABLE_NAME])})
	}
	return list, nil
}

// answerTimeout bounds the wait for the kernel's answer to a change.
const answerTimeout = 10 // seconds

// changeNFT has nf_tables do all of the changes, or none (libnftnl, batches). Each asks for an
// answer of its own.
func changeNFT(changes []*nl.NetlinkRequest) error {
	socket, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer socket.Close()
	if err := socket.SetReceiveTimeout(&unix.Timeval{Sec: answerTimeout}); err != nil {
		return err
	}
	begin, end := batchRequest(unix.NFNL_MSG_BATCH_BEGIN), batchRequest(unix.NFNL_MSG_BATCH_END)
	batch := begin.Serialize()
	for _, c := range changes {
		batch = append(batch, c.Serialize()...)
	}
	batch = append(batch, end.Serialize()...)
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := unix.Sendto(socket.GetFd(), batch, 0, kernel); err != nil {
		return err
	}
	for done := 0; done < len(changes); {
		answers, _, err := socket.Receive()
		if err != nil {
			return err
		}
		for _, a := range answers {
			if a.Header.Type != unix.NLMSG_ERROR || len(a.Data) < 4 {
				continue
			}
			if code := int32(binary.NativeEndian.Uint32(a.Data)); code != 0 {
				return unix.Errno(-code)
			}
			done++
		}
	}
	return nil
}

// batchRequest is the first or the last message of a batch; its header names the subsystem.
func batchRequest(message int) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(message, 0)
	request.AddData(&nl.Nfgenmsg{
		Version: unix.NFNETLINK_V0, ResId: nl.Swap16(unix.NFNL_SUBSYS_NFTABLES),
	})
	return request
}
