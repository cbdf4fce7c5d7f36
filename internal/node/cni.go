package node

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// bridge is the interface that pods are attached to.
const bridge = "cni0"

// ConflistName is our network configuration. Configurations are read in the order of their names, so that a network which
// is installed into the cluster later (05-cilium.conflist, 10-...) wins over ours.
const ConflistName = "99-aks-flex-node.conflist"

// plugins are the reference CNI plugins, as released (containernetworking/plugins).
var plugins = [...]string{
	"bandwidth", "bridge", "dhcp", "dummy", "firewall", "host-device", "host-local", "ipvlan", "loopback", "macvlan",
	"portmap", "ptp", "sbr", "static", "tap", "tuning", "vlan", "vrf",
}

// cni installs the plugins and, where nobody else has configured a pod network, a bridge on this node's own pod subnet.
func cni(p *part) {
	for _, name := range plugins {
		p.add(p.bin(p.config.Paths.CNI.BinDir, "cni-plugins", name))
	}
	if p.facts.PodCIDR == "" || len(p.facts.ForeignCNI) > 0 {
		return
	}
	p.add(state.NewFile(path.Join(p.config.Paths.CNI.ConfDir, ConflistName), 0o644, conflist(p.facts.PodCIDR)))
}

// conflist is a CNI network configuration list (CNI specification 1.0.0).
func conflist(podCIDR string) string {
	anywhere := "0.0.0.0/0"
	if strings.Contains(podCIDR, ":") {
		anywhere = "::/0"
	}
	type object = map[string]any
	list := object{
		"cniVersion": "1.0.0",
		"name":       "aks-flex-node",
		"plugins": []object{
			{
				"type":         "bridge",
				"bridge":       bridge,
				"isGateway":    true,
				"ipMasq":       true,
				"hairpinMode":  true,
				"promiscMode":  false,
				"forceAddress": false,
				"ipam": object{
					"type":   "host-local",
					"ranges": [][]object{{{"subnet": podCIDR}}},
					"routes": []object{{"dst": anywhere}},
				},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}, "snat": true},
		},
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		panic("internal error: " + err.Error())
	}
	return string(text) + "\n"
}
