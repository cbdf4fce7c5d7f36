package flexnode

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/config/leftopen"
	"github.com/Azure/AKSFlexNode/internal/release"
)

type object = map[string]any

// Layer is an immutable part of configurations that many nodes share; nil is an empty one.
type Layer struct {
	ID   string // ContentID of Text
	Text []byte // canonical JSON
	// object holds the settings in Text.
	object object
}

// ReadLayer reads a stored layer; nil for an empty text.
func ReadLayer(text []byte) (*Layer, error) {
	if len(text) == 0 {
		return nil, nil
	}
	object, err := readObject(text)
	if err != nil {
		return nil, fmt.Errorf("cannot read a layer of configurations: %w", err)
	}
	return &Layer{ID: ContentID(text), Text: text, object: object}, nil
}

// newLayer returns the layer of an object, which must encode.
func newLayer(o object) *Layer {
	layer, err := ReadLayer(encode(o))
	if err != nil {
		panic("internal error: " + err.Error())
	}
	return layer
}

// settings returns the settings of a layer; nil for none.
func (l *Layer) settings() object {
	if l == nil {
		return nil
	}
	return l.object
}

// DefaultsLayer returns the settings that the operator of the provider gives every node, and below
// them the agent's own defaults, so that an agent with other defaults changes nothing.
func DefaultsLayer(operator map[string]any) *Layer {
	given := object{}
	if len(operator) > 0 {
		given = newLayer(operator).object // as it is read
	}
	open, _ := leftopen.Find(given, config.Host{})
	for _, path := range leftopen.KeptFromJoin() {
		drop(open, path)
	}
	return newLayer(fill(given, open))
}

// Polling returns an operator's settings with the URL of the provider for agents to poll, and the
// audience of tokens for it, unless they name others.
func Polling(operator map[string]any, url, audience string) map[string]any {
	if url == "" {
		return operator
	}
	polls := object{"agent": object{"monitoring": without(
		object{"endpoint": url, "audience": audience})}}
	return overlay("", polls, operator)
}

// FactsLayer returns the facts that the nodes of a cluster receive.
func FactsLayer(f Facts, clusterID string) *Layer {
	id, _ := arm.Parse(clusterID)
	return newLayer(object{
		"azure": without(object{
			"subscriptionId": id.Subscription,
			"tenantId":       f.TenantID,
			"targetCluster":  without(object{"resourceId": clusterID, "location": f.Location}),
		}),
		"node": object{"kubelet": without(object{
			"serverURL":    f.ServerURL,
			"caCertData":   f.CACertData,
			"dnsServiceIP": f.DNSServiceIP,
		})},
	})
}

// ClusterOfFacts returns the key of the cluster that a layer has the facts of; "" for other layers.
func ClusterOfFacts(layer []byte) (string, error) {
	o, err := readObject(layer)
	key, _ := KeyOf(textIn(o, "azure", "targetCluster", "resourceId"))
	return key, err
}

// DNSServiceIP returns the address of the cluster's DNS in a layer of facts; "" if it is unknown.
func (l *Layer) DNSServiceIP() string {
	return textIn(l.settings(), "node", "kubelet", "dnsServiceIP")
}

// OwnLayer returns a node's own settings as canonical JSON, without secrets and defaults.
func OwnLayer(n Node) json.RawMessage { return encode(ownLayer(n, "")) }

// ownLayer returns the own layer of a node whose pods reach network with their own addresses, ""
// for none, as readObject would read it. The network is not one of the cluster's facts: a new fact
// would render all existing nodes again.
func ownLayer(n Node, network string) object {
	own := adopted(n)
	put(own, "agent.nodeName", nodeName(n.ID))
	ownAzure(n, own["azure"].(object))
	if n.Chosen.PodCIDR != "" {
		put(own, "cni.podCIDR", n.Chosen.PodCIDR)
	}
	if network != "" {
		put(own, "cni."+directNetworks, []any{network})
	}
	// A container can break out with an accepted version.
	flawed := func(a artifact) bool { return release.Flawed(a.name, a.version) != "" }
	if slices.ContainsFunc(artifactsOf(n.Chosen.Versions), flawed) {
		put(own, "artifacts.allowVulnerable", true)
	}
	return own
}

func nodeName(id string) string { return strings.ToLower(LastOf(id)) }

// ownAzure adds the node's way to join and its identity in Azure.
func ownAzure(n Node, section object) {
	if !n.Desired.KubernetesAuth.UseAzureAuth {
		section["bootstrapToken"] = object{} // how it joins; the token itself is a secret
	}
	if r := n.Desired.AzureAuth.Registries; len(r) > 0 {
		maps.Copy(section, objectOf(AzureAuth{Registries: r}))
	}
	switch auth := n.Desired.AzureAuth; auth.Method {
	case api.ServicePrincipal:
		ownPrincipal(auth, section)
	case api.ManagedIdentity:
		mi := cmp.Or(auth.ManagedIdentity, &ManagedIdentityAuth{})
		section["managedIdentity"] = without(object{"clientId": mi.ClientID})
	case api.Arc:
		ownPrincipal(auth, section)
		ownArc(n, section)
	}
}

// ownPrincipal adds the service principal that the node has, or that enrols its Arc machine.
func ownPrincipal(auth AzureAuth, section object) {
	if sp, _ := principalOf(auth); sp != nil {
		section["servicePrincipal"] = without(object{"clientId": sp.ClientID,
			"clientTenant": sp.ClientTenant, "secretExpires": sp.SecretExpires})
	}
}

// ownArc adds the Arc machine. The agent's configuration has the subscription of that machine; if
// it is the cluster's, it comes from the facts.
func ownArc(n Node, section object) {
	arc := object{}
	section["arc"] = arc
	if given := n.Desired.AzureAuth.Arc; given != nil && given.AutoRoleAssignment {
		arc["autoRoleAssignment"] = true
	}
	machine, err := arm.Parse(MachineOf(n.ID, n.Desired))
	if err != nil {
		return
	}
	arc["machineName"], arc["resourceGroup"] = machine.Name(), machine.ResourceGroup
	cluster, err := arm.Parse(n.ID)
	if err != nil || !arm.EqualFold(machine.Subscription, cluster.Subscription) {
		section["subscriptionId"] = machine.Subscription
	}
}

// without removes empty settings, so that the agent's defaults hold.
func without(o object) object {
	maps.DeleteFunc(o, func(_ string, v any) bool { return v == "" })
	return o
}

func chosenIn(own object) Chosen {
	of := func(component string) string { return textIn(own, component, "version") }
	return Chosen{PodCIDR: textIn(own, "cni", "podCIDR"), Versions: Versions{
		Kubernetes: of("kubernetes"), Containerd: of("containerd"), Runc: of("runc"),
		CNI: of("cni"), NPD: of("npd"),
	}}
}

// saidByFacts returns the settings that follow from facts, and are in no own layer.
func saidByFacts() [][]string {
	return [][]string{
		{"azure", "subscriptionId"}, {"azure", "servicePrincipal", "tenantId"},
		{"azure", "arc", "location"}, {"node", "kubelet", "dnsServiceIP"},
	}
}

// wholeOwnLayer returns a node's own layer with the agent's defaults for every setting that the
// layers leave open, and the problems that checkNode finds.
func (n Node) wholeOwnLayer(network string, parent Parent) (object, Problems) {
	own := ownLayer(n, network)
	parent.mark(own)
	open, problems := n.check(own, parent)
	for _, path := range saidByFacts() {
		drop(open, path)
	}
	own = fill(own, open)
	if n.Chosen.Versions.Kubernetes == "" {
		problems = checkNode(n, own, parent)
	}
	return own, problems
}

// fill returns an object with the settings of another that it leaves open.
func fill(o, open object) object {
	filled := copied(o)
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

func drop(o object, path []string) {
	for _, name := range path[:len(path)-1] {
		o, _ = o[name].(object)
	}
	delete(o, path[len(path)-1])
}
