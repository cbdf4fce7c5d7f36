package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// tableFamilies are the families of nftables by their names in nft(8).
var tableFamilies = map[nftables.TableFamily]string{
	nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6",
	nftables.TableFamilyINet: "inet", nftables.TableFamilyARP: "arp",
	nftables.TableFamilyBridge: "bridge", nftables.TableFamilyNetdev: "netdev",
}

// findTables lists the nftables tables of a name, as "ip kube-proxy". It asks the kernel: the nft
// program is often missing where kube-proxy brings its own.
func findTables(name string) ([]string, error) {
	tables, err := listTables(&nftables.Conn{})
	var found []string
	for _, t := range tables {
		if t.Name == name {
			found = append(found, showTable(t))
		}
	}
	return found, err
}

// clearTables removes tables with all that is in them, in one transaction.
func clearTables(found []string) error {
	conn := &nftables.Conn{}
	tables, err := listTables(conn)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if slices.Contains(found, showTable(t)) {
			conn.DelTable(t)
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("cannot remove %s: %w", strings.Join(found, ", "), err)
	}
	return nil
}

// listTables lists all tables; none where the kernel has no nftables.
func listTables(conn *nftables.Conn) ([]*nftables.Table, error) {
	tables, err := conn.ListTables()
	if lacksNFT(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the tables of nftables: %w", err)
	}
	return tables, nil
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

func showTable(t *nftables.Table) string { return tableFamilies[t.Family] + " " + t.Name }
