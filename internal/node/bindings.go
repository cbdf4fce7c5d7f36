package node

import (
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// Bindings holds the values that can change under a healthy node. They are stored beside the
// rendered node, so that a rollback never returns to a dead address or CA.
type Bindings struct {
	// Server is the API server's URL and CA the PEM certificates that verify it.
	Server string `json:"server"`
	CA     string `json:"ca"`
	// PodCIDRs are the node's own pod subnets, at most one per family; empty until allocated.
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// ForeignCNI lists network configurations of others; if there are any, ours is left out.
	ForeignCNI []string `json:"foreignCNI,omitempty"`
	// ForeignArc is set if others have installed the Arc agent; found out whenever a node is bound.
	ForeignArc bool `json:"-"`
	// Program is the path of aks-flex-node itself, which kubelet runs for tokens.
	Program string `json:"program,omitempty"`
	// Joined is set once kubelet has a credential of its own and the Node was Ready.
	Joined bool `json:"joined"`
	// Rebound is set if Server or CA differ from those in the kubeconfig that kubelet wrote.
	Rebound         bool          `json:"rebound,omitempty"`
	BootstrapToken  config.Secret `json:"-"` // known only until kubelet has joined
	AdminKubeconfig config.Secret `json:"-"` // known only if the node should have it
}

// The conditions for an item to be part of the node.
const (
	Joining     state.Only = "joining"          // kubelet has not joined
	Joined      state.Only = "joined"           // kubelet has joined
	OwnNetwork  state.Only = "own-network"      // no one else configures the pod network
	OwnNetwork4 state.Only = "own-network-ipv4" // the same, and pods have IPv4 addresses
	OwnNetwork6 state.Only = "own-network-ipv6" // the same, and pods have IPv6 addresses
	OwnArc      state.Only = "own-arc"          // no one else has installed the Arc agent
	Rebound     state.Only = "rebound"          // kubelet's kubeconfig has a previous address or CA
)

// conditions reports which of the conditions that this release knows hold.
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
// with values instead of placeholders. It spares items whose condition this release does not know.
// Files carry their content, and their digests are computed again. A placeholder without a value
// stays: its item comes after an unmet need.
func Bind(d state.Desired, b Bindings) state.Desired {
	// One pass: a value is never searched for placeholders.
	replacer, conditions := strings.NewReplacer(b.pairs()...), b.conditions()
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
