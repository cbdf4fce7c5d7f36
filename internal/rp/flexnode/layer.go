package flexnode

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/config/leftopen"
)

// object is a JSON object.
type object = map[string]any

// Layer is a part of configurations that many nodes share; nil is an empty one. It does not change.
type Layer struct {
	ID   string // ContentID of Text
	Text []byte // canonical JSON
	// object holds the settings in Text.
	object object
}

// ReadLayer reads a layer that was stored; nil for an empty text.
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

// newLayer makes a layer of what encodes.
func newLayer(o object) *Layer {
	layer, err := ReadLayer(encode(o))
	if err != nil {
		panic("internal error: " + err.Error())
	}
	return layer
}

// settings are those of a layer.
func (l *Layer) settings() object {
	if l == nil {
		return nil
	}
	return l.object
}

// DefaultsLayer returns the settings that the operator of the provider gives every node, and below
// them the agent's own defaults: so an agent with other ones changes nothing.
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

// FactsOf reads facts back from their layer.
func FactsOf(layer []byte) (Facts, error) {
	o, err := readObject(layer)
	if err != nil || o == nil {
		return Facts{}, fmt.Errorf("cannot read the facts of a cluster: %w",
			cmp.Or(err, errors.New("there are none")))
	}
	return Facts{
		ServerURL:    textIn(o, "node", "kubelet", "serverURL"),
		CACertData:   textIn(o, "node", "kubelet", "caCertData"),
		DNSServiceIP: textIn(o, "node", "kubelet", "dnsServiceIP"),
		TenantID:     textIn(o, "azure", "tenantId"),
		Location:     textIn(o, "azure", "targetCluster", "location"),
	}, nil
}

// OwnLayer returns a node's own settings, as canonical JSON, without secrets; without the defaults
// that depend on it (wholeOwnLayer).
func OwnLayer(n Node) json.RawMessage { return encode(ownLayer(n, "")) }

// ownLayer is the own layer of a node whose pods reach a network with their own addresses, as
// readObject would read it; "" is none. The network is no part of the cluster's facts: those of the
// nodes that are there would be others, and all of them rendered again.
func ownLayer(n Node, network string) object {
	v := n.Chosen.Versions
	cni := without(object{"version": v.CNI, "podCIDR": n.Chosen.PodCIDR})
	if network != "" {
		cni[directNetworks] = []any{network}
	}
	own := object{
		"agent":      ownAgent(n),
		"azure":      ownAzure(n),
		"kubernetes": object{"version": v.Kubernetes},
		"containerd": object{"version": v.Containerd},
		"runc":       object{"version": v.Runc},
		"cni":        cni,
		"npd":        object{"version": v.NPD},
		"node":       objectOf(n.Desired.NodeConfig),
	}
	if access := n.Desired.Network.Metadata; access != "" {
		own["network"] = object{"metadata": access}
	}
	if allowsVulnerable(v) {
		own["artifacts"] = object{"allowVulnerable": true}
	}
	if n.Desired.ContinuousMonitoring {
		own["continuousMonitoring"] = true
	}
	return own
}

// nodeName is the name of the Node in Kubernetes.
func nodeName(id string) string { return strings.ToLower(baseName(id)) }

// baseName is the last segment of an id.
func baseName(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

func ownAzure(n Node) object {
	section := without(object{"kubeletCredential": n.Desired.KubernetesAuth.KubeletCredential})
	if !n.Desired.KubernetesAuth.UseAzureAuth {
		section["bootstrapToken"] = object{} // how it joins; the token itself is a secret
	}
	if r := n.Desired.AzureAuth.Registries; len(r) > 0 {
		maps.Copy(section, objectOf(api.AzureAuth{Registries: r}))
	}
	switch auth := n.Desired.AzureAuth; auth.Method {
	case api.ServicePrincipal:
		ownPrincipal(auth, section)
	case api.ManagedIdentity:
		identity := object{}
		if mi := auth.ManagedIdentity; mi != nil {
			identity = without(object{"clientId": mi.ClientID})
		}
		section["managedIdentity"] = identity
	case api.Arc:
		ownPrincipal(auth, section)
		ownArc(n, section)
	}
	return section
}

// ownPrincipal is the identity that the node has or, beside an Arc machine, is enrolled by.
func ownPrincipal(auth api.AzureAuth, section object) {
	if sp, _ := principalOf(auth); sp != nil {
		section["servicePrincipal"] = without(
			object{"clientId": sp.ClientID, "clientTenant": sp.ClientTenant,
				"secretExpires": sp.SecretExpires})
	}
}

// ownArc names the Arc machine. The subscription of the agent's configuration is that of the
// machine's own resources; where it is the cluster's, the facts have it.
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

// ownAgent is about the agent itself, whose settings have the names that the resource's have.
// Durations were checked (Problems.durations).
func ownAgent(n Node) object {
	policy, monitoring := n.Desired.UpgradePolicy, n.Desired.Monitoring
	section := without(object{
		"nodeName": nodeName(n.ID), "driftPolicy": n.Desired.DriftPolicy,
		"readyTimeout": goDuration(policy.ReadyTimeout),
	})
	policy.Deadline, policy.ReadyTimeout = goDuration(policy.Deadline), ""
	policy.Paused = false // Admit alone reads it
	if w := policy.MaintenanceWindow; w != nil {
		own := *w
		own.Duration, policy.MaintenanceWindow = goDuration(w.Duration), &own
	}
	monitoring.Interval = goDuration(monitoring.Interval)
	parts := object{
		"driftPolicies": n.Desired.DriftPolicies, "upgradePolicy": policy, "monitoring": monitoring,
	}
	for name, settings := range parts {
		if o := objectOf(settings); len(o) > 0 {
			section[name] = o
		}
	}
	return section
}

// without leaves out what is empty, so that the agent's defaults hold.
func without(o object) object {
	maps.DeleteFunc(o, func(_ string, v any) bool { return v == "" })
	return o
}
