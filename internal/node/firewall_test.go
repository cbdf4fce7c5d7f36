package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// Each firewall lets pass what a node needs of it; what is about our bridge is part of the node
// while there is no other network.
func TestOpenings(t *testing.T) {
	ports := []string{"in tcp 10250,30000-32767", "in udp 30000-32767"}
	for _, tt := range []struct {
		firewall    state.Firewall
		always, own []string
	}{
		{state.Firewall{Name: "ufw"}, ports,
			[]string{"in from cni0", "forward from cni0", "forward to cni0"}},
		{state.Firewall{Name: "firewalld public"},
			[]string{"in tcp 10250", "in tcp 30000-32767", "in udp 30000-32767"},
			[]string{"in from cni0"}},
		{state.Firewall{Name: "nft inet x y", Hook: "input"}, ports, []string{"in from cni0"}},
		{state.Firewall{Name: "iptables-nft FORWARD", Hook: "forward"},
			[]string{"forward translated"},
			[]string{"forward from cni0", "forward to cni0"}},
		{state.Firewall{Name: "ip6tables-nft OUTPUT", Hook: "output"},
			nil, []string{"out to cni0"}},
	} {
		all := Openings(tt.firewall)
		for name, want := range map[string][]string{
			"":                   slices.Concat(tt.always, tt.own),
			"10-calico.conflist": tt.always,
		} {
			var b Bindings
			if name != "" {
				b.ForeignCNI = []string{name}
			}
			var got []string
			for _, item := range Bind(all, b) {
				o := item.Resource.(state.Opening)
				if o.Firewall != tt.firewall.Name || !o.Open {
					t.Errorf("an opening is %+v", o)
				}
				got = append(got, o.Rule)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%v, network %q (-want +got):\n%s", tt.firewall, name, diff)
			}
		}
	}
}

// No network is let in: those that pods reach with their own address are let pass to our bridge,
// where a firewall can say so.
func TestOpeningsOfNetworks(t *testing.T) {
	c, f := base(), facts()
	f.Firewalls = []state.Firewall{
		{Name: "ufw"}, {Name: "firewalld public"}, {Name: "nft inet x y", Hook: "input"},
		{Name: "nft inet x y", Hook: "forward"}, {Name: "iptables-nft INPUT", Hook: "input"},
		{Name: "ip6tables-nft FORWARD", Hook: "forward"},
	}
	without := openingKeys(Render(c, f))
	c.CNI.NonMasqueradeCIDRs = []string{"10.244.0.0/16", "fd00::/48"}
	if diff := cmp.Diff(without, openingKeys(Render(c, f))); diff != "" {
		t.Errorf("networks are opened (-want +got):\n%s", diff)
	}
	if !slices.Contains(without, "opening:nft inet x y: forward to cni0") {
		t.Errorf("the bridge is not: %q", without)
	}
}

func openingKeys(list state.Desired) (keys []string) {
	for _, key := range list.Keys() {
		if key.IsOpening() {
			keys = append(keys, string(key))
		}
	}
	return keys
}

// Firewalls are opened before kubelet starts, and only those that the facts have.
func TestRenderOpenings(t *testing.T) {
	c, f := base(), facts()
	before := len(Render(c, f))
	f.Firewalls = []state.Firewall{{Name: "iptables-nft INPUT", Hook: "input"}, {Name: "ufw"}}
	list := Render(c, f)
	if got := len(list) - before; got != 8 {
		t.Errorf("there are %d openings", got)
	}
	last, kubelet := -1, -1
	for i, key := range list.Keys() {
		switch {
		case key.IsOpening():
			last = i
			if list[i].Step != state.System {
				t.Errorf("%s is of step %s", key, list[i].Step)
			}
		case strings.HasSuffix(string(key), KubeletUnit) && strings.HasPrefix(string(key), "unit:"):
			kubelet = i
		}
	}
	if last > kubelet {
		t.Error("kubelet starts before the firewalls are open")
	}
}
