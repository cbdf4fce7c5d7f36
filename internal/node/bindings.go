package node

import (
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Bindings holds the values that can change under a healthy node. They are kept beside the rendered
// node, so that going back to an earlier one never goes back to a dead address or CA.
type Bindings struct {
	// Server is the API server's URL and CA the PEM certificates that it is verified with.
	Server string `json:"server"`
	CA     string `json:"ca"`
	// PodCIDRs are the node's own pod subnets, at most one of each family; empty until allocated.
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// ForeignCNI lists network configurations that are not ours; with one, ours is left out.
	ForeignCNI []string `json:"foreignCNI,omitempty"`
	// ForeignArc reports that the Arc agent was installed by others, as found whenever a node is
	// bound.
	ForeignArc bool `json:"-"`
	// Program is the path of aks-flex-node itself, which kubelet calls for tokens.
	Program string `json:"program,omitempty"`
	// Joined tells that kubelet has a credential of its own and the Node was Ready once.
	Joined bool `json:"joined"`
	// Rebound tells that Server or CA differ from those that kubelet wrote into its kubeconfig.
	Rebound bool `json:"rebound,omitempty"`
	// BootstrapToken is known only until kubelet has joined.
	BootstrapToken config.Secret `json:"-"`
	// AdminKubeconfig is known where the node is to have it.
	AdminKubeconfig config.Secret `json:"-"`
}

// When an item is part of the node.
const (
	// Joining: until kubelet has joined.
	Joining state.Only = "joining"
	// Joined: once kubelet has joined.
	Joined state.Only = "joined"
	// OwnNetwork: no one else configures the pod network.
	OwnNetwork state.Only = "own-network"
	// OwnNetwork4 and OwnNetwork6: and pods have addresses of that family.
	OwnNetwork4 state.Only = "own-network-ipv4"
	OwnNetwork6 state.Only = "own-network-ipv6"
	// OwnArc: no one else has installed the Arc agent.
	OwnArc state.Only = "own-arc"
	// Rebound: the kubeconfig that kubelet wrote leads to a previous address or CA.
	Rebound state.Only = "rebound"
)

// conditions are the conditions that this release knows, and whether items of each are part of the
// node. A newer release may have written another one.
func (b Bindings) conditions() map[state.Only]bool {
	ours := len(b.ForeignCNI) == 0
	return map[state.Only]bool{
		"":          true,
		Joining:     !b.Joined,
		Joined:      b.Joined,
		OwnNetwork:  ours,
		OwnNetwork4: ours && b.pods(false) != "",
		OwnNetwork6: ours && b.pods(true) != "",
		OwnArc:      !b.ForeignArc,
		Rebound:     b.Rebound,
	}
}

// IsOwnNetwork reports whether an item belongs to our own pod network.
func IsOwnNetwork(only state.Only) bool {
	return only == OwnNetwork || only == OwnNetwork4 || only == OwnNetwork6
}

// pods returns the pod subnet of a family, or "".
func (b Bindings) pods(ipv6 bool) string {
	for _, cidr := range b.PodCIDRs {
		if isIPv6(cidr) == ipv6 {
			return cidr
		}
	}
	return ""
}

// Bind returns the node of one machine at one time: without the items that are not part of it, and
// with its own values instead of placeholders. An item whose condition this release does not know
// is spared. Files carry their content; their digests are computed again. A placeholder without a
// value is left as it is: its item comes after a need that is not met.
func Bind(d state.Desired, b Bindings) state.Desired {
	// One pass: a value is never searched for placeholders.
	replacer := strings.NewReplacer(b.pairs()...)
	conditions := b.conditions()
	var bound state.Desired
	for _, item := range d {
		holds, known := conditions[item.Only]
		if known && !holds {
			continue
		}
		item.Spared = !known
		if file, ok := item.Resource.(state.File); ok {
			if content := replacer.Replace(file.Content); content != file.Content {
				file.Content, file.SHA256 = content, state.Digest(content)
				item.Resource = file
			}
		}
		bound = append(bound, item)
	}
	return bound
}
