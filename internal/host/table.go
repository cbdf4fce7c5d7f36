package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// setTable loads a table from its file, or removes it. The file replaces the table whole.
func (h *Host) setTable(ctx context.Context, to state.Table) error {
	return h.change(state.Describe(state.Change{To: to}), func() error {
		if to.Rules == 0 {
			return h.Kernel.Clear(ctx, state.Residue{Kind: state.Tables}, []string{to.Name})
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
	chains, err := readChains(func(c *nftables.Chain) bool { return tableName(c.Table) == table })
	n := 0
	for _, c := range chains {
		n += len(c.rules)
	}
	return n, err
}

// tableName is the name of a table with its family, as "ip kube-proxy".
func tableName(t *nftables.Table) string { return tableFamilies[t.Family] + " " + t.Name }

// findTables lists the nftables tables of a name in all families. It asks the kernel: the nft
// program is often missing where kube-proxy brings its own.
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

// clearTables removes tables with all that is in them, in one transaction.
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

// deleteTables removes all of the tables, or none.
func deleteTables(tables []*nftables.Table) error {
	return withNFT(func(nft *nftables.Conn) error {
		for _, t := range tables {
			nft.DelTable(t)
		}
		return nft.Flush()
	})
}
