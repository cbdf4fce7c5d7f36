package flexnode

import (
	"encoding/json"
	"maps"

	"github.com/Azure/AKSFlexNode/internal/config/leftopen"
)

// saidByFacts returns the settings that follow from a cluster's facts. They are not in a node's own
// layer, where they would not follow new facts.
func saidByFacts() [][]string {
	return [][]string{
		{"azure", "subscriptionId"}, {"azure", "servicePrincipal", "tenantId"},
		{"azure", "arc", "location"}, {"node", "kubelet", "dnsServiceIP"},
	}
}

// wholeOwnLayer is a node's own layer with the agent's defaults for all that the layers together
// leave open. The problems are those of checkNode: it is checked as it is made.
func (n Node) wholeOwnLayer(network string, parent Parent) (json.RawMessage, Problems) {
	own := ownLayer(n, network)
	parent.mark(own)
	whole := checkedConfig(n, own, parent, anyGrants(n))
	open, found := leftopen.Find(whole, anyHost())
	for _, path := range saidByFacts() {
		drop(open, path)
	}
	text := encode(fill(own, open))
	if n.Chosen.Versions.Kubernetes == "" {
		return text, checkNode(n, text, parent)
	}
	return text, n.told(whole, found)
}

// fill is an object with what another has and it leaves open.
func fill(o, open object) object {
	filled := maps.Clone(o)
	if filled == nil {
		filled = object{}
	}
	for name, value := range open {
		inner, isObject := value.(object)
		below, both := filled[name].(object)
		switch has := filled[name]; {
		case both && isObject:
			filled[name] = fill(below, inner)
		case has == nil || has == "":
			filled[name] = value
		}
	}
	return filled
}

// drop takes a setting out of an object.
func drop(o object, path []string) {
	for _, name := range path[:len(path)-1] {
		o, _ = o[name].(object)
	}
	delete(o, path[len(path)-1])
}
