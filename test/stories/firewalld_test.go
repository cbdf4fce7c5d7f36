package stories

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/host"
)

// firewalldWall starts firewalld, as the machine's owner, before the machine joins with
// network.firewall: manage.
func (w *world) firewalldWall() {
	w.t.Helper()
	w.kernel.filters = []host.Filter{
		{Family: "inet", Table: "firewalld", Name: "filter_INPUT", Hook: "input"},
	}
	w.write("/etc/firewalld/firewalld.conf", "DefaultZone=public\n")
	w.write(zoneFile("public"), "<zone>\n<port port=\"22\" protocol=\"tcp\"/>\n</zone>\n")
	w.write(zoneFile("trusted"), "<zone target=\"ACCEPT\">\n</zone>\n")
	w.programs = w.firewallPrograms
	w.config = w.configuration(firewall("manage"))
}

func zoneFile(zone string) string { return "/etc/firewalld/zones/" + zone + ".xml" }

// firewallCmd stores active rules in the kernel, and permanent ones as lines of the zone's file. To
// add an existing rule, or to remove a missing one, is a no-op.
func (w *world) firewallCmd(words []string) error {
	permanent := words[0] == "--permanent"
	if permanent {
		words = words[1:]
	}
	zone, ok := strings.CutPrefix(words[0], "--zone=")
	option, adds := strings.CutPrefix(words[1], "--add-")
	if !adds {
		option, _ = strings.CutPrefix(words[1], "--remove-")
	}
	kind, value, _ := strings.Cut(option, "=")
	port, protocol, _ := strings.Cut(value, "/")
	element := fmt.Sprintf("<port port=%q protocol=%q/>\n", port, protocol)
	if kind == "interface" {
		element = fmt.Sprintf("<interface name=%q/>\n", value)
	}
	switch {
	case !ok || len(words) != 2 || kind != "port" && kind != "interface":
		return fmt.Errorf("cannot parse %q", words)
	case permanent:
		text := strings.ReplaceAll(w.read(zoneFile(zone)), element, "")
		if adds {
			text = strings.Replace(text, "</zone>", element+"</zone>", 1)
		}
		return os.WriteFile(filepath.Join(w.root, zoneFile(zone)), []byte(text), 0o644)
	}
	is := host.FilterRule{Comment: zone + " " + option, Accepts: true}
	w.kernel.change("inet", "firewalld", "filter_INPUT", func(r []host.FilterRule) []host.FilterRule {
		r = slices.DeleteFunc(r, func(r host.FilterRule) bool { return r == is })
		if adds {
			r = append(r, is)
		}
		return r
	})
	return nil
}

// firewalld accepts a node's ports and its bridge, now and after a reload, but no network; in the
// end it is restored. A wider range of its owner is no drift.
func TestFirewalldManaged(t *testing.T) {
	w := newWorld(t)
	w.firewalldWall()
	before := w.tree()
	w.config = w.configuration(firewall("manage"), func(c map[string]any) {
		c["cni"] = map[string]any{"nonMasqueradeCIDRs": []string{"10.244.0.0/16"}}
	})
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	in := "filter_INPUT:public port="
	want := in + "10250/tcp " + in + "30000-32767/tcp " + in + "30000-32767/udp " +
		"filter_INPUT:trusted interface=cni0"
	if is := w.kernel.show(); !strings.HasSuffix(is, want) || strings.Contains(is, "source") {
		t.Errorf("in force is %s", is)
	}
	is := w.read(zoneFile("trusted"))
	if !strings.Contains(is, "cni0") || strings.Contains(is, "10.") {
		t.Errorf("the zone trusted is\n%s", is)
	}
	public := w.read(zoneFile("public"))
	w.write(zoneFile("public"), strings.Replace(public, `"30000-32767" protocol="tcp"`,
		`"30000-40000" protocol="tcp"`, 1))
	if report, err := w.drift(false); err != nil || len(report.Changes) > 0 {
		t.Errorf("with a wider range, there is drift: %+v, %v", report.Changes, err)
	}
	w.write(zoneFile("public"), public)
	if err := w.unbootstrap(); err != nil {
		t.Fatal(err)
	}
	w.same(before)
}
