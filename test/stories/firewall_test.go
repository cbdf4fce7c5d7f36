package stories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Filters implements host.Kernel.
func (k *kernel) Filters() ([]host.Filter, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := slices.Clone(k.filters)
	for i, f := range list {
		list[i].Rules = slices.Clone(f.Rules)
	}
	return list, k.filterErr
}

// Rules implements host.Kernel.
func (k *kernel) Rules(table string) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tables[table], nil
}

// DialFrom implements host.Kernel: the metadata service of this machine answers unless a table
// blocks pods.
func (k *kernel) DialFrom(context.Context, string, netip.AddrPort) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.tables) > 0 {
		return unix.ECONNREFUSED
	}
	return nil
}

// LoadTable implements host.Kernel.
func (k *kernel) LoadTable(_ context.Context, to state.Table) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, err := os.Stat(to.File); err != nil {
		return err
	}
	k.tables[to.Name] = to.Rules
	return nil
}

func (k *kernel) ClockSynchronized() (bool, error) { return !k.unsynchronized.Load(), nil }

// change changes the rules of one chain.
func (k *kernel) change(family, table, name string, do func([]host.FilterRule) []host.FilterRule) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, f := range k.filters {
		if f.Family == family && f.Table == table && f.Name == name {
			k.filters[i].Rules = do(f.Rules)
		}
	}
}

const ufwRules = "/etc/ufw/user.rules"

// owners returns the chains and rules of the firewall's owner.
func owners() []host.Filter {
	ssh := []host.FilterRule{{Comment: "ssh", Accepts: true, Handle: 1}}
	return []host.Filter{
		{Family: "inet", Table: "guard", Name: "input", Hook: "input", Drops: true, Rules: ssh},
		{Family: "inet", Table: "guard", Name: "forward", Hook: "forward", Drops: true},
		{Family: "ip6", Table: "guard", Name: "output", Hook: "output"},
	}
}

// wall turns on ufw, and a firewall of nftables beside it, as the machine's owner, before the
// machine joins with network.firewall: manage.
func (w *world) wall() {
	w.t.Helper()
	w.kernel.filters = owners()
	w.write("/etc/ufw/ufw.conf", "ENABLED=yes\n")
	w.write(ufwRules, "### tuple ### allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 in\n")
	w.programs = w.firewallPrograms
	w.config = w.configuration(firewall("manage"))
}

func firewall(what string) func(map[string]any) {
	return func(c map[string]any) { c["network"] = map[string]any{"firewall": what} }
}

// reloadFirewalls acts as the owner's reload of nftables: only the owner's rules are left.
func (w *world) reloadFirewalls() {
	w.kernel.mu.Lock()
	defer w.kernel.mu.Unlock()
	w.kernel.filters = owners()
}

// firewallPrograms acts as nft, ufw and firewall-cmd, as far as the agent uses them.
func (w *world) firewallPrograms(_ context.Context, argv []string) ([]byte, error) {
	switch argv[0] {
	case "nft":
		return nil, w.nft(strings.Fields(argv[1]))
	case "ufw":
		return nil, w.ufw(argv[1:])
	case "firewall-cmd":
		return nil, w.firewallCmd(argv[1:])
	}
	return nil, fs.ErrNotExist
}

func (w *world) nft(words []string) error {
	last, where := words[len(words)-1], words[2:5]
	switch words[0] {
	case "insert":
		w.kernel.change(where[0], where[1], where[2], func(r []host.FilterRule) []host.FilterRule {
			rule := host.FilterRule{Comment: last, Accepts: true, Handle: uint64(100 + len(r))}
			return slices.Insert(r, 0, rule)
		})
	case "delete":
		w.kernel.change(where[0], where[1], where[2], func(r []host.FilterRule) []host.FilterRule {
			return slices.DeleteFunc(r, func(r host.FilterRule) bool { return fmt.Sprint(r.Handle) == last })
		})
	default:
		return fmt.Errorf("cannot parse %q", words)
	}
	return nil
}

// ufw stores a rule as a line of its file.
func (w *world) ufw(words []string) error {
	route := slices.Contains(words, "route")
	words = slices.DeleteFunc(words, func(s string) bool { return s == "route" })
	remove := words[0] == "delete"
	if remove {
		words = words[1:]
	}
	if words[0] != "allow" {
		return fmt.Errorf("cannot parse %q", words)
	}
	const anywhere = " 0.0.0.0/0 any 0.0.0.0/0 "
	line := "### tuple ### allow any any" + anywhere
	switch {
	case words[2:] != nil && len(words) > 3 && words[2] == "on":
		line += words[1] + "_" + words[3]
		words = words[4:]
	default:
		port, protocol, _ := strings.Cut(words[1], "/")
		line = "### tuple ### allow " + protocol + " " + port + anywhere + "in"
		words = words[2:]
	}
	if route {
		line = strings.Replace(line, "allow", "route:allow", 1)
	}
	rules := w.read(ufwRules)
	if remove {
		var kept []string
		for l := range strings.Lines(rules) {
			if !strings.HasPrefix(l, line) {
				kept = append(kept, l)
			}
		}
		rules = strings.Join(kept, "")
	} else {
		rules += fmt.Sprintf("%s comment=%x\n", line, words[1])
	}
	return os.WriteFile(filepath.Join(w.root, ufwRules), []byte(rules), 0o644)
}

// Rules that block a node's traffic are reported before the join, with the commands that cure it;
// after these are run by hand, nothing is reported.
func TestFirewallChecked(t *testing.T) {
	w := newWorld(t)
	w.wall()
	w.config = w.configuration()
	before := w.tree()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"ufw allow 10250,30000:32767/tcp comment aks-flex-node-in-tcp-10250-30000-32767",
		"ufw route allow in on cni0 comment", "nft 'insert rule inet guard input udp dport",
		"nft 'insert rule inet guard forward ct status dnat accept comment",
	} {
		if n := w.warned(text); n != 1 {
			t.Errorf("%d warnings say %q in\n%s", n, text, w.log.String())
		}
	}
	c := w.condition(health.FirewallOpen)
	if c.Status != health.False || c.Reason != "FirewallBlocks" {
		t.Errorf("the condition is %+v", c)
	}
	if !w.status().Healthy() {
		t.Error("behind a firewall that is only warned of, the node is not healthy")
	}
	if after := w.kernel.show(); strings.Contains(after, "aks-flex-node-") {
		t.Errorf("a firewall was changed: %s", after)
	}
	w.config = w.configuration(firewall("ignore"))
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if c := w.condition(health.FirewallOpen); c.Status != health.True {
		t.Errorf("the condition of what is ignored is %+v", c)
	}
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}

// A managed firewall is open for the node, also after a reload and if it was turned on later, and
// is restored in the end. Later changes of its owner remain.
func TestFirewallManaged(t *testing.T) {
	w := newWorld(t)
	w.wall()
	before := w.tree()
	open := func(when string, want int) {
		t.Helper()
		got := strings.Count(w.kernel.show(), "aks-flex-node-") +
			strings.Count(w.read(ufwRules), "comment=")
		if got != want {
			t.Errorf("%s, there are %d rules of ours, want %d: %s\n%s",
				when, got, want, w.kernel.show(), w.read(ufwRules))
		}
		if c := w.condition(health.FirewallOpen); c.Status != health.True {
			t.Errorf("%s, the condition is %+v", when, c)
		}
		if report, err := w.drift(false); err != nil || len(report.Changes) > 0 {
			t.Errorf("%s, there is drift: %+v, %v", when, report.Changes, err)
		}
	}
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	open("after the join", 11)
	if n := w.warned("a firewall of this machine"); n != 0 {
		t.Errorf("what is opened is warned of %d times", n)
	}
	touches := w.touched()
	if result, err := w.bootstrap(); err != nil || result.Changes != 0 || w.touched() != touches {
		t.Errorf("the second bootstrap made %d changes: %v", result.Changes, err)
	}

	w.reloadFirewalls()
	if report, err := w.drift(true); err != nil || len(report.Changes) != 6 {
		t.Errorf("the repair made %+v, %v", report.Changes, err)
	}
	open("after a reload and a repair", 11)

	w.kernel.mu.Lock()
	w.kernel.filters[2].Drops = true
	w.kernel.mu.Unlock()
	if c := w.condition(health.FirewallOpen); c.Status != health.False {
		t.Errorf("of a new firewall, the condition is %+v", c)
	}
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	open("after a new firewall", 12)

	w.kernel.mu.Lock()
	w.kernel.filters[2].Drops = false
	w.kernel.filters = w.kernel.filters[:3]
	w.kernel.mu.Unlock()
	open("after one stops nothing any more", 12)
	rules := w.read(ufwRules)
	w.write(ufwRules, rules+"### tuple ### allow tcp 80 0.0.0.0/0 any 0.0.0.0/0 in\n")
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	if rules := w.read(ufwRules); !strings.Contains(rules, "tcp 80") ||
		strings.Contains(rules, "comment=") {
		t.Errorf("the rules of ufw are now\n%s", rules)
	}
	w.write(ufwRules, "### tuple ### allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 in\n")
	w.same(before)
}

// If the firewalls cannot be determined, a join or a change that must open them changes nothing.
func TestFirewallUnknown(t *testing.T) {
	w := newWorld(t)
	w.wall()
	before := w.tree()
	w.kernel.filterErr = errors.New("the kernel does not tell")
	_, err := w.bootstrap()
	if !errors.Is(err, w.kernel.filterErr) || !strings.Contains(err.Error(), "network.firewall") {
		t.Errorf("the error is %v", err)
	}
	w.same(before)
	w.kernel.filterErr = nil
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.kernel.filterErr = errors.New("the kernel does not tell now")
	w.config = w.configuration(firewall("manage"), policy("report"))
	if _, err := w.bootstrap(); !errors.Is(err, w.kernel.filterErr) {
		t.Errorf("the error of a change is %v", err)
	}
}

// A firewall that is not managed any more is closed again.
func TestFirewallNoLongerManaged(t *testing.T) {
	w := newWorld(t)
	w.wall()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.config = w.configuration(firewall("check"))
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if is := w.kernel.show(); strings.Contains(is, "aks-flex-node-") {
		t.Errorf("there are rules of ours: %s", is)
	}
}

// The daemon opens a managed firewall again after a reload, whatever its policy for other drift,
// and a check runs no program.
func TestFirewallReloaded(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.wall()
		runs := 0
		s.programs = func(ctx context.Context, argv []string) ([]byte, error) {
			runs++
			return s.firewallPrograms(ctx, argv)
		}
		s.edit(policy("report"), firewall("manage"))
		s.join()
		joined := s.kernel.show()
		s.sleep(2 * time.Minute)
		runs = 0
		s.sleep(time.Hour)
		if runs != 0 {
			t.Errorf("in an hour %d programs ran", runs)
		}
		s.write(forwardSysctl, "0\n")
		s.reloadFirewalls()
		s.until(3*time.Minute, "it is open again", func() bool { return s.kernel.show() == joined })
		if runs != 6 || !s.reverted() {
			t.Errorf("%d programs ran; other drift was repaired: %v", runs, !s.reverted())
		}
		s.sleep(2 * time.Minute)
		if drifts := s.drifts(); slices.ContainsFunc(drifts, func(key string) bool {
			return strings.HasPrefix(key, "opening:")
		}) {
			t.Errorf("the drift is %q", drifts)
		}
	})
}

// A check of a node behind a closed firewall runs no program and reads no journal; the daemon
// reports the node as healthy, and once the traffic that the firewall blocks.
func TestClosedFirewallIsCheap(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		s.wall()
		s.edit()
		s.join()
		s.sleep(5 * time.Minute)
		s.set(func() { s.journals, s.runs, s.checks = 0, 0, 0 })
		s.sleep(time.Hour)
		if s.journals != 0 || s.runs != 0 || s.checks < 45 {
			t.Errorf("in an hour: %d checks, %d journals read, %d programs run",
				s.checks, s.journals, s.runs)
		}
		is := s.is()
		closed := slices.ContainsFunc(is.Conditions, func(c health.Condition) bool {
			return c.Type == health.FirewallOpen && c.Status == health.False && c.Message != ""
		})
		if !closed || !is.Healthy() {
			t.Errorf("the status is healthy: %v, %+v", is.Healthy(), is.Conditions)
		}
		if !strings.Contains(s.log.String(), "the node is healthy") {
			t.Errorf("the log says not that the node is healthy:\n%s", s.log.String())
		}
	})
}

// A node blocks its pods from the machine's metadata service, again after a flush of the rules and
// with any drift policy, until the configuration allows it or the machine leaves.
func TestMetadataGuard(t *testing.T) {
	w := newWorld(t)
	before := w.tree()
	guarded := func(when string, want health.Status, reason string) {
		t.Helper()
		c := w.condition("MetadataGuarded")
		if c.Status != want || reason != "" && c.Reason != reason {
			t.Errorf("%s, the condition is %+v", when, c)
		}
	}
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.write("/run/netns/cni-1", "")
	guarded("after the join", health.True, "")

	w.kernel.flush()
	guarded("after a flush", health.False, "MetadataReachable")
	if found := w.check(); !slices.Contains(found.Repair, "table:"+node.MetadataTable) {
		t.Errorf("with the policy to report drift, the daemon repairs %v", found.Repair)
	}
	if report, err := w.drift(true); err != nil || len(report.Changes) != 1 {
		t.Errorf("the repair made %+v, %v", report.Changes, err)
	}
	guarded("after a repair", health.True, "")

	w.config = w.configuration(func(c map[string]any) {
		c["network"] = map[string]any{"metadata": "allow"}
	})
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	guarded("when it is allowed", health.Unknown, "Allowed")
	if rules := w.read("/opt/aks-flex-node/metadata.nft"); !strings.Contains(rules, "\t\treturn\n") {
		t.Errorf("the rules are %s", rules)
	}
	w.config = w.configuration()
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(w.root, "/run/netns")); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}

// flush removes all tables.
func (k *kernel) flush() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.tables)
}
