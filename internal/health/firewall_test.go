package health

import (
	"errors"
	"strings"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/config"
)

func TestFirewallOpen(t *testing.T) {
	closed := Answered([]Firewall{
		{"ufw", []string{"in tcp 10250"}, []string{"ufw allow 10250/tcp"}},
		{"nft ip x y", []string{"in from cni0", "in udp 1"}, []string{"nft 'a'", "nft 'b'"}},
	}, nil)
	const found = "a firewall of this machine blocks traffic that a node needs: ufw (in tcp 10250), " +
		"nft ip x y (in from cni0; in udp 1); "
	for name, tt := range map[string]struct {
		change       func(*Evidence)
		status       Status
		message      string
		isCautioning bool
	}{
		"check": {func(*Evidence) {}, False, found + "set network.firewall to manage, or to ignore " +
			"if other rules allow it, or run: ufw allow 10250/tcp; nft 'a'; nft 'b'", true},
		"manage": {func(e *Evidence) { e.Wanted.Network.Firewall = config.FirewallManage }, False,
			found + "open it again with `aks-flex-node bootstrap`", true},
		"tunnel": {func(e *Evidence) { e.Machine.Tunnel = true }, False, strings.TrimSuffix(found, "; ") +
			"; logs and exec use the cluster's tunnel (konnectivity-agent on this node); " +
			"set network.firewall to manage, or to ignore if other rules allow it, or run: ufw " +
			"allow 10250/tcp; nft 'a'; nft 'b'", true},
		"no tunnel": {func(e *Evidence) { e.Machine.Installed = true }, False,
			strings.TrimSuffix(found, "; ") + "; logs and exec need port 10250: no tunnel " +
				"of the cluster (konnectivity-agent) ends on this node; set network.firewall to manage, or " +
				"to ignore if other rules allow it, or run: ufw allow 10250/tcp; nft 'a'; nft 'b'", true},
		"ignore": {func(e *Evidence) {
			e.Wanted.Network.Firewall = config.FirewallIgnore
		}, True, "", false},
		"none":         {func(e *Evidence) { e.Machine.Barriers.Value = nil }, True, "", false},
		"not examined": {func(e *Evidence) { e.Machine = nil }, Unknown, "this was not checked", false},
		"unknown": {func(e *Evidence) {
			e.Machine.Barriers = Answered[[]Firewall](nil, errors.New("no netlink"))
		}, Unknown, "no netlink", false},
	} {
		t.Run(name, func(t *testing.T) {
			e := good()
			e.Machine.Barriers = closed
			tt.change(&e)
			c := condition(t, FirewallOpen, e)
			if c.Status != tt.status || c.Message != tt.message {
				t.Errorf("the condition is %s: %q", c.Status, c.Message)
			}
			cautions := Cautions(e)
			if tt.isCautioning != (len(cautions) == 1 && cautions[0].Message == c.Message) {
				t.Errorf("the cautions are %q", cautions)
			}
			if err := Problem(Evaluate(Preflight, e)); err != nil && e.Machine != nil {
				t.Errorf("it keeps a machine from being a node: %v", err)
			}
		})
	}
}
