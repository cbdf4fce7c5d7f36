package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// recorded is a machine whose programs only write down how they were called.
func recorded(t *testing.T, calls *[]string) (*Host, *kernel) {
	t.Helper()
	h := testHost(t)
	h.Programs = func(_ context.Context, argv []string) ([]byte, error) {
		*calls = append(*calls, strings.Join(argv, " "))
		return nil, nil
	}
	return h, h.Kernel.(*kernel)
}

func opening(firewall, rule string) state.Opening {
	return state.Opening{Firewall: firewall, Rule: rule, Open: true}
}

func (h *Host) shut(t *testing.T, o state.Opening) error {
	t.Helper()
	o.Open = false
	return h.Set(t.Context(), state.Change{To: o, Undo: true}, nil)
}

// Each sort of firewall is opened by its own program, and closed by naming our rule alone.
func TestOpeningCommands(t *testing.T) {
	const ports = "in tcp 10250,30000-32767"
	for _, tt := range []struct{ firewall, rule, open, close string }{
		{"nft inet filter input", ports, "nft insert rule inet filter input tcp dport " +
			"{ 10250, 30000-32767 } accept comment aks-flex-node-in-tcp-10250-30000-32767",
			"nft delete rule inet filter input handle 7"},
		{"nft inet filter input", "in from cni0", `nft insert rule inet filter input iifname "cni0" ` +
			"accept comment aks-flex-node-in-from-cni0", "nft delete rule inet filter input handle 7"},
		{"nft ip x y", "out to cni0", `nft insert rule ip x y oifname "cni0" accept comment ` +
			"aks-flex-node-out-to-cni0", "nft delete rule ip x y handle 7"},
		{"nft ip x y", "forward translated", "nft insert rule ip x y ct status dnat accept comment " +
			"aks-flex-node-forward-translated", "nft delete rule ip x y handle 7"},
		{"iptables-nft INPUT", ports, "iptables-nft -w -I INPUT -p tcp -m multiport --dports " +
			"10250,30000:32767 -m comment --comment aks-flex-node-in-tcp-10250-30000-32767 -j ACCEPT",
			"iptables-nft -w -D INPUT -p tcp -m multiport --dports " +
				"10250,30000:32767 -m comment --comment aks-flex-node-in-tcp-10250-30000-32767 -j ACCEPT"},
		{"ip6tables-nft FORWARD", "forward from cni0", "ip6tables-nft -w -I FORWARD -i cni0 " +
			"-m comment --comment aks-flex-node-forward-from-cni0 -j ACCEPT",
			"ip6tables-nft -w -D FORWARD -i cni0 " +
				"-m comment --comment aks-flex-node-forward-from-cni0 -j ACCEPT"},
		{"iptables-nft FORWARD", "forward translated", "iptables-nft -w -I FORWARD -m conntrack " +
			"--ctstate DNAT -m comment --comment aks-flex-node-forward-translated -j ACCEPT",
			"iptables-nft -w -D FORWARD -m conntrack --ctstate DNAT " +
				"-m comment --comment aks-flex-node-forward-translated -j ACCEPT"},
	} {
		t.Run(tt.firewall+" "+tt.rule, func(t *testing.T) {
			var calls []string
			h, k := recorded(t, &calls)
			f := Filter{Family: "inet", Table: "filter", Name: "input", Drops: true}
			switch words := strings.Fields(tt.firewall); words[0] {
			case "iptables-nft":
				f.Family, f.Name = "ip", words[1]
			case "ip6tables-nft":
				f.Family, f.Name = "ip6", words[1]
			default:
				f.Family, f.Table, f.Name = words[1], words[2], words[3]
			}
			k.filters = []Filter{f}
			o := opening(tt.firewall, tt.rule)
			if is := observe(t, h, o.Key()).(state.Opening); is.Open || is.Off {
				t.Errorf("before, it is %+v", is)
			}
			if err := h.Set(t.Context(), state.Change{To: o}, nil); err != nil {
				t.Fatal(err)
			}
			owners := FilterRule{Comment: "aks-flex-node-of-the-owner", Accepts: true, Handle: 3}
			changed := FilterRule{Comment: parseRule(tt.rule).comment(), Handle: 5}
			k.filters[0].Rules = []FilterRule{owners, changed}
			if observe(t, h, o.Key()).(state.Opening).Open {
				t.Error("a rule with our comment that does not accept counts as ours")
			}
			if err := h.shut(t, o); err != nil {
				t.Fatal(err)
			}
			changed.Accepts, changed.Handle = true, 7
			k.filters[0].Rules = append(k.filters[0].Rules, changed)
			if !observe(t, h, o.Key()).(state.Opening).Open {
				t.Error("our rule is not seen")
			}
			if err := h.shut(t, o); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tt.open, tt.close}, calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			k.filters[0].Rules, k.filters[0].Drops = nil, false
			if is := observe(t, h, o.Key()).(state.Opening); !is.Off {
				t.Errorf("of a chain that does not drop it is %+v", is)
			}
			k.filters = nil
			if is := observe(t, h, o.Key()).(state.Opening); !is.Off {
				t.Errorf("of a chain that has gone it is %+v", is)
			}
		})
	}
}

// What ufw and firewalld have is read from their own files.
func TestOpeningsOfPrograms(t *testing.T) {
	tuple := func(text, comment string) string {
		return "### tuple ### " + text + comment + "\n-A ufw-user-input -j ACCEPT\n"
	}
	for _, tt := range []struct{ firewall, rule, file, text, open, close string }{
		{"ufw", "in tcp 10250,30000-32767", ufwRules,
			"allow tcp 10250,30000:32767 0.0.0.0/0 any 0.0.0.0/0 in",
			"ufw allow 10250,30000:32767/tcp comment aks-flex-node-in-tcp-10250-30000-32767",
			"ufw delete allow 10250,30000:32767/tcp"},
		{"ufw", "in from cni0", ufwRules, "allow any any 0.0.0.0/0 any 0.0.0.0/0 in_cni0",
			"ufw allow in on cni0 comment aks-flex-node-in-from-cni0", "ufw delete allow in on cni0"},
		{"ufw", "forward from cni0", ufwRules, "route:allow any any 0.0.0.0/0 any 0.0.0.0/0 in_cni0",
			"ufw route allow in on cni0 comment aks-flex-node-forward-from-cni0",
			"ufw route delete allow in on cni0"},
		{"ufw", "forward to cni0", ufwRules, "route:allow any any 0.0.0.0/0 any 0.0.0.0/0 out_cni0",
			"ufw route allow out on cni0 comment aks-flex-node-forward-to-cni0",
			"ufw route delete allow out on cni0"},
		{"ufw", "out to cni0", ufwRules, "allow any any 0.0.0.0/0 any 0.0.0.0/0 out_cni0",
			"ufw allow out on cni0 comment aks-flex-node-out-to-cni0", "ufw delete allow out on cni0"},
		{"firewalld public", "in tcp 10250", "/etc/firewalld/zones/public.xml",
			`<zone><port port="10250" protocol="tcp"/></zone>`,
			"firewall-cmd --permanent --zone=public --add-port=10250/tcp\n" +
				"firewall-cmd --zone=public --add-port=10250/tcp",
			"firewall-cmd --zone=public --remove-port=10250/tcp\n" +
				"firewall-cmd --permanent --zone=public --remove-port=10250/tcp"},
		{"firewalld home", "in from cni0", "/usr/lib/firewalld/zones/trusted.xml",
			`<zone target="ACCEPT"><interface name="cni0"/></zone>`,
			"firewall-cmd --permanent --zone=trusted --add-interface=cni0\n" +
				"firewall-cmd --zone=trusted --add-interface=cni0",
			"firewall-cmd --zone=trusted --remove-interface=cni0\n" +
				"firewall-cmd --permanent --zone=trusted --remove-interface=cni0"},
	} {
		t.Run(tt.firewall+" "+tt.rule, func(t *testing.T) {
			var calls []string
			h, k := recorded(t, &calls)
			o := opening(tt.firewall, tt.rule)
			if is := observe(t, h, o.Key()).(state.Opening); !is.Off {
				t.Errorf("of a firewall that is not there it is %+v", is)
			}
			write(t, h, ufwConf, "# x\nENABLED=yes\n")
			k.filters = []Filter{{Family: "inet", Table: "firewalld", Name: "filter_INPUT"}}
			if is := observe(t, h, o.Key()).(state.Opening); is.Open || is.Off {
				t.Errorf("before, it is %+v", is)
			}
			if err := h.Set(t.Context(), state.Change{To: o}, nil); err != nil {
				t.Fatal(err)
			}
			text, comment := tt.text, fmt.Sprintf(" comment=%x", parseRule(tt.rule).comment())
			if tt.firewall == "ufw" {
				text = tuple(tt.text, comment)
			}
			write(t, h, tt.file, text)
			if !observe(t, h, o.Key()).(state.Opening).Open {
				t.Error("our rule is not seen")
			}
			if err := h.shut(t, o); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.open+"\n"+tt.close, strings.Join(calls, "\n")); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if tt.firewall != "ufw" {
				return
			}
			calls = nil
			write(t, h, tt.file, tuple(tt.text, " comment=6f776e6572"))
			if !observe(t, h, o.Key()).(state.Opening).Open {
				t.Error("the owner's rule is not seen")
			}
			if err := h.shut(t, o); err != nil || len(calls) > 0 {
				t.Errorf("the owner's rule is removed: %q, %v", calls, err)
			}
		})
	}
}

// A firewalld that does not run is changed on disk.
func TestFirewalldStopped(t *testing.T) {
	var calls []string
	h, _ := recorded(t, &calls)
	write(t, h, "/etc/firewalld/zones/public.xml",
		`<zone><port port="10250" protocol="tcp"/></zone>`)
	if err := h.shut(t, opening("firewalld public", "in tcp 10250")); err != nil {
		t.Fatal(err)
	}
	want := []string{"firewall-offline-cmd --zone=public --remove-port=10250/tcp"}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// A wider range of firewalld's owner is as good as ours, and nothing is taken out of it.
func TestFirewalldRanges(t *testing.T) {
	const ours = "in tcp 30000-32767"
	for _, tt := range []struct {
		rule, elements string
		open           bool
		calls          int
	}{
		{ours, `<port port="30000-40000" protocol="tcp"/>`, true, 0},
		{"in tcp 10250", `<port protocol="tcp" port="10000-20000"></port>`, true, 0},
		{ours, `<port port="30000-40000" protocol="tcp"/><port port="30000-32767" protocol="tcp" />`,
			true, 2},
		{ours, `<port port="30000-32767" protocol="udp"/>`, false, 0},
		{ours, `<port port="30000-32766" protocol="tcp"/>`, false, 0},
		{ours, `<port port="30001-40000" protocol="tcp"/>`, false, 0},
		{ours, `<port port="30000" protocol="tcp"/><port port="x-y" protocol="tcp"/>`, false, 0},
		{ours, `<!-- <port port="30000-32767" protocol="tcp"/> -->`, false, 0},
		{ours, `<source-port port="30000-32767" protocol="tcp"/>`, false, 0},
	} {
		t.Run(tt.elements, func(t *testing.T) {
			var calls []string
			h, k := recorded(t, &calls)
			k.filters = []Filter{{Family: "inet", Table: "firewalld", Name: "filter_INPUT"}}
			write(t, h, "/etc/firewalld/zones/public.xml",
				`<?xml version="1.0" encoding="utf-8"?><zone>`+tt.elements+"</zone>")
			o := opening("firewalld public", tt.rule)
			if is := observe(t, h, o.Key()).(state.Opening); is.Open != tt.open {
				t.Errorf("it is %+v", is)
			}
			if err := h.shut(t, o); err != nil || len(calls) != tt.calls {
				t.Errorf("%v, calls %q", err, calls)
			}
			if tt.open {
				if err := h.Set(t.Context(), state.Change{To: o}, nil); err != nil ||
					len(calls) != tt.calls {
					t.Errorf("to open it again: %v, calls %q", err, calls)
				}
			}
		})
	}
	h := testHost(t)
	write(t, h, "/etc/firewalld/zones/public.xml", "<zone>")
	if _, err := h.Observe(t.Context(), opening("firewalld public", ours).Key()); err == nil {
		t.Error("a zone that cannot be read was observed")
	}
}

func TestFirewalls(t *testing.T) {
	base := func(family, table, name, hook string, drops bool) Filter {
		return Filter{Family: family, Table: table, Name: name, Hook: hook, Drops: drops}
	}
	chains := []Filter{
		base("inet", "filter", "input", "input", true), base("inet", "x", "out", "output", false),
		base("ip", "filter", "INPUT", "input", true), base("ip6", "filter", "FORWARD", "forward", true),
		base("ip", "filter", "mine", "forward", true), base("ip", "kube-proxy", "f", "forward", false),
	}
	for name, tt := range map[string]struct {
		ufw, firewalld bool
		want           []state.Firewall
	}{
		"bare": {want: []state.Firewall{
			{Name: "nft inet filter input", Hook: "input"},
			{Name: "iptables-nft INPUT", Hook: "input"},
			{Name: "ip6tables-nft FORWARD", Hook: "forward"},
			{Name: "nft ip filter mine", Hook: "forward"},
		}},
		"ufw": {ufw: true, want: []state.Firewall{
			{Name: "ufw"},
			{Name: "nft inet filter input", Hook: "input"},
			{Name: "nft ip filter mine", Hook: "forward"},
		}},
		"firewalld": {firewalld: true, want: []state.Firewall{
			{Name: "firewalld home"},
			{Name: "nft inet filter input", Hook: "input"},
			{Name: "iptables-nft INPUT", Hook: "input"},
			{Name: "ip6tables-nft FORWARD", Hook: "forward"},
			{Name: "nft ip filter mine", Hook: "forward"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := testHost(t)
			k := h.Kernel.(*kernel)
			k.filters = chains
			write(t, h, ufwConf, map[bool]string{true: "ENABLED=yes\n", false: "ENABLED=no\n"}[tt.ufw])
			if tt.firewalld {
				write(t, h, "/etc/firewalld/firewalld.conf", "# x\nDefaultZone=home\n")
				k.filters = append(chains, base("inet", "firewalld", "filter_INPUT", "input", true))
			}
			found, err := h.Firewalls()
			if diff := cmp.Diff(tt.want, found); diff != "" || err != nil {
				t.Errorf("%v, found (-want +got):\n%s", err, diff)
			}
		})
	}
	if zone := testHost(t).defaultZone(); zone != "public" {
		t.Errorf("the default zone is %s", zone)
	}
}

// What cannot be done says so.
func TestOpeningErrors(t *testing.T) {
	var calls []string
	h, k := recorded(t, &calls)
	k.filters = []Filter{{Family: "ip", Table: "filter", Name: "INPUT", Drops: true}}
	o := opening("iptables-nft INPUT", "in from cni0")
	h.Programs = func(context.Context, []string) ([]byte, error) { return nil, fs.ErrNotExist }
	err := h.Set(t.Context(), state.Change{To: o}, nil)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "install it") {
		t.Errorf("without the program: %v", err)
	}
	k.broken = fs.ErrPermission
	if _, err := h.Observe(t.Context(), o.Key()); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("the error is %v", err)
	}
	if _, err := h.Firewalls(); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("the error is %v", err)
	}
	strange := opening("pf", "in from cni0")
	if _, err := h.Observe(t.Context(), strange.Key()); err == nil {
		t.Error("an unknown firewall was observed")
	}
	if err := h.Set(t.Context(), state.Change{To: strange}, nil); err == nil {
		t.Error("an unknown firewall was set")
	}
	if got := h.OpeningCommands(strange); got != nil {
		t.Errorf("commands for an unknown firewall: %q", got)
	}
}

// Commands are printed so that a shell takes them.
func TestCommandsForPeople(t *testing.T) {
	h := testHost(t)
	got := h.OpeningCommands(opening("nft inet filter input", "in udp 30000-32767"))
	want := []string{"nft 'insert rule inet filter input udp dport { 30000-32767 } accept " +
		"comment aks-flex-node-in-udp-30000-32767'"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}
