package lab

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// OwnLog is the directory of the agent's log, the only thing that remains after unbootstrap.
const OwnLog = "/var/log/aks-flex-node"

// passing lists paths that change independently of the agent's work: journals, caches, counters;
// dpkg's log, locks, copy of its list of packages and daily backups; apt's daily lock; and the
// agent's log.
var passing = []string{
	OwnLog,
	"/var/log/dpkg.log", "/var/lib/dpkg/status-old", "/var/lib/dpkg/lock",
	"/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/triggers/Lock", "/var/backups",
	"/var/lib/apt/daily_lock",
	"/proc", "/sys", "/dev", "/tmp", "/run", "/var/log/journal", "/var/lib/systemd", "/var/cache",
	"/var/tmp", "/var/log/wtmp", "/var/log/lastlog", "/var/log/btmp",
	"/etc/machine-id", "/root/.cache",
}

// Snapshot describes a whole machine in lines: every file with its name, mode, owner and digest,
// links, and the state of units, kernel parameters, mounts, interfaces, routes and rules.
func (l *Lab) Snapshot(ctx context.Context, m Machine) ([]string, error) {
	lines, err := tree(m.Root)
	if err != nil {
		return nil, err
	}
	for _, q := range questions {
		cmd, err := l.Command(ctx, m, "bash", "-c", q.command)
		if err != nil {
			return nil, err
		}
		out, _ := cmd.Output() // grep exits with 1 without a match
		for line := range strings.Lines(string(out)) {
			lines = append(lines, q.name+" "+strings.TrimSpace(line))
		}
	}
	tables, err := l.Tables(m)
	for _, table := range tables {
		if !slices.Contains(iptablesTables, table.Name) {
			lines = append(lines, fmt.Sprintf("nftables %d %s", table.Family, table.Name))
		}
	}
	return lines, err
}

// questions are the commands that describe a machine's state.
var questions = []struct{ name, command string }{
	{"run", `find /run -xdev \( -path /run/systemd -o -path /run/udev \
		-o -path /run/log -o -path /run/dbus \
		-o -path /run/host \) -prune -o -printf '%p %y %m %u:%g %l\n' | sort`},
	{"unit", `systemctl list-unit-files --no-legend --no-pager | sort`},
	{"active", `systemctl list-units --no-legend --no-pager --plain \
		--type=service,slice,swap,timer --state=active,failed | awk '{print $1,$3}' |
		grep -vE 'man-db|apt-daily|dpkg-db|e2scrub|systemd-tmpfiles|fstrim|systemd-journald' |
		grep -vE 'systemd-timesyncd|user|getty' | sort`},
	{"sysctl", `sysctl -a 2>/dev/null |
		grep -E '^(net\.(ipv4|ipv6|bridge)|vm\.(overcommit|panic|swappiness)|kernel\.(panic|keys))' |
		grep -vE 'cni0|veth|random|nr_|stat|netdev_rss|conntrack_count|tcp_mem|route.*(gc|flush)' |
		grep -vE 'panic_on_warn|fib_|mtu_expires|base_reachable|host0' | sort`},
	{"mount", `awk '{print $5, $9, $10}' /proc/self/mountinfo |
		grep -vE '^/run/(systemd|credentials)|^/proc' | sort`},
	{"link", `ip -o link | awk -F': ' '{print $2}' | sort`},
	{"addr", `ip -o addr show scope global | awk '{print $2,$3,$4}' | sort`},
	{"route", `ip route; ip -6 route show proto boot`},
	{"rule", `ip rule`},
	{"iptables", `iptables-save | grep -vE '^(#|\*|COMMIT|:[A-Z]+ ACCEPT)' | sed 's/\[[0-9:]*\]//'`},
	{"ip6tables",
		`ip6tables-save | grep -vE '^(#|\*|COMMIT|:[A-Z]+ ACCEPT)' | sed 's/\[[0-9:]*\]//'`},
	{"cgroup", `find /sys/fs/cgroup -maxdepth 2 -name '*kube*' | sort`},
	{"process", `ls -l /proc/*/exe 2>/dev/null | sed -n 's/.*-> //p' |
		grep -E 'aks-flex|kube|containerd' | sort`},
}

// iptablesTables are the tables that iptables creates when it lists rules, and never removes.
var iptablesTables = []string{"filter", "nat", "mangle", "raw", "security"}

// Table is an nftables table.
type Table struct {
	Family byte
	Name   string
}

// Tables returns the nftables tables of a machine, which has no nft program.
func (l *Lab) Tables(m Machine) (list []Table, err error) {
	network, err := l.Network(m)
	if err != nil {
		return nil, err
	}
	defer network.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			list, err = listTables()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return nil, fmt.Errorf("cannot list the tables of nftables in %s: %w", m.Name, err)
	}
	return list, nil
}

// listTables lists the nftables tables of this thread's network namespace.
func listTables() ([]Table, error) {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE,
		unix.NLM_F_DUMP)
	request.AddData(&nl.Nfgenmsg{})
	found, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return nil, err
	}
	var list []Table
	for _, data := range found {
		attributes, err := nl.ParseRouteAttr(data[nl.SizeofNfgenmsg:])
		if err != nil {
			return nil, err
		}
		for _, a := range attributes {
			if a.Attr.Type == unix.NFTA_TABLE_NAME {
				list = append(list, Table{data[0], nl.BytesToString(a.Value)})
			}
		}
	}
	return list, nil
}

// tree describes a directory tree in lines.
func tree(root string) ([]string, error) {
	var lines []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := "/" + strings.TrimPrefix(strings.TrimPrefix(path, root), "/")
		for _, p := range passing {
			if name == p {
				if d.IsDir() {
					return filepath.SkipDir
				}
				return nil
			}
		}
		line, err := describe(path, name)
		if err != nil {
			return err
		}
		lines = append(lines, line)
		return nil
	})
	sort.Strings(lines)
	return lines, err
}

func describe(path, name string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	st := info.Sys().(*syscall.Stat_t)
	line := fmt.Sprintf("file %s %s %d:%d", name, info.Mode(), st.Uid, st.Gid)
	switch info.Mode().Type() {
	case fs.ModeSymlink:
		target, err := os.Readlink(path)
		return line + " -> " + target, err
	case 0:
		if st.Nlink > 1 { // shared with the base system (copySystem) until it is replaced
			return fmt.Sprintf("%s %d inode %d %s", line, info.Size(), st.Ino, info.ModTime()), nil
		}
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		sum := sha256.New()
		if _, err := io.Copy(sum, f); err != nil {
			return "", err
		}
		return fmt.Sprintf("%s %d %x", line, info.Size(), sum.Sum(nil)[:8]), nil
	}
	return line, nil
}

// Differences returns the lines that are in only one of two snapshots, with "-" for the first.
func Differences(before, after []string) []string {
	count := map[string]int{}
	for _, line := range before {
		count[line]++
	}
	var differ []string
	for _, line := range after {
		if count[line]--; count[line] < 0 {
			differ = append(differ, "+"+line)
		}
	}
	for _, line := range before {
		if count[line] > 0 {
			count[line]--
			differ = append(differ, "-"+line)
		}
	}
	if len(differ) == 0 && !slices.Equal(before, after) {
		return []string{"+the lines have another order"}
	}
	slices.SortStableFunc(differ, func(a, b string) int { return strings.Compare(a[1:], b[1:]) })
	return differ
}
