package rp

import (
	"maps"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

// object is a JSON object.
type object = map[string]any

// grants are the secrets of a node; without them a configuration has none.
type grants struct {
	ClientSecret string
	Token        string // bootstrap token, id.secret
}

// render makes the agent's configuration of a node: what the operator of the provider gives every node, under what the cluster is, under
// what the node's owner wants. It is pure, and complete but for the secrets that are not given.
func render(n store.Node, f store.Facts, defaults object, g grants) object {
	id, _ := arm.Parse(n.ID)
	d, v := n.Desired, n.Resolved.Versions
	config := object{
		"azure":      azure(n, f, g),
		"kubernetes": object{"version": v.Kubernetes},
		"containerd": object{"version": v.Containerd},
		"runc":       object{"version": v.Runc},
		"cni":        without(object{"version": v.CNI, "podCIDR": n.Resolved.PodCIDR}),
		"npd":        object{"version": v.NPD},
		"node":       node(d.NodeConfig, f),
		"agent":      object{"nodeName": strings.ToLower(id.Name())},
	}
	if d.ContinuousMonitoring {
		config["continuousMonitoring"] = true
	}
	return overlay(defaults, config)
}

func azure(n store.Node, f store.Facts, g grants) object {
	id, _ := arm.Parse(n.ID)
	section := without(object{
		"subscriptionId": id.Subscription, "tenantId": f.TenantID,
		"targetCluster": without(object{"resourceId": clusterID(n.ID), "location": f.Location}),
	})
	switch auth := n.Desired.AzureAuth; auth.Method {
	case api.ServicePrincipal:
		section["servicePrincipal"] = without(object{
			"clientId": auth.ServicePrincipal.ClientID, "clientSecret": g.ClientSecret, "clientTenant": auth.ServicePrincipal.ClientTenant,
		})
	case api.ManagedIdentity:
		identity := object{}
		if auth.ManagedIdentity != nil {
			identity = without(object{"clientId": auth.ManagedIdentity.ClientID})
		}
		section["managedIdentity"] = identity
	case api.Arc:
		section["arc"] = arcSection(n)
	}
	if !n.Desired.KubernetesAuth.UseAzureAuth && g.Token != "" {
		section["bootstrapToken"] = object{"token": g.Token}
	}
	return section
}

// arcSection names the Arc machine; one in another resource group than the cluster's says so.
func arcSection(n store.Node) object {
	machine, err := arm.Parse(n.Machine())
	if err != nil {
		return object{}
	}
	return object{"machineName": machine.Name(), "resourceGroup": machine.ResourceGroup}
}

func node(c api.NodeConfig, f store.Facts) object {
	kubelet := without(object{
		"serverURL": f.ServerURL, "caCertData": f.CACertData, "dnsServiceIP": f.DNSServiceIP, "nodeIP": c.Kubelet.NodeIP,
		"imageGCHighThreshold": c.Kubelet.ImageGCHighThreshold, "imageGCLowThreshold": c.Kubelet.ImageGCLowThreshold, "verbosity": c.Kubelet.Verbosity,
	})
	if len(c.Kubelet.KubeReserved) > 0 {
		kubelet["kubeReserved"] = c.Kubelet.KubeReserved
	}
	if len(c.Kubelet.EvictionHard) > 0 {
		kubelet["evictionHard"] = c.Kubelet.EvictionHard
	}
	section := without(object{"maxPods": c.MaxPods, "kubelet": kubelet})
	if len(c.Labels) > 0 {
		section["labels"] = c.Labels
	}
	if len(c.Taints) > 0 {
		section["taints"] = c.Taints
	}
	return section
}

// without leaves out what is empty, so that the agent's defaults hold.
func without(o object) object {
	maps.DeleteFunc(o, func(_ string, v any) bool { return v == "" || v == 0 })
	return o
}

// overlay puts one object over another; objects in both are put over each other, everything else is replaced.
func overlay(under, over object) object {
	result := maps.Clone(under)
	if result == nil {
		result = object{}
	}
	for key, value := range over {
		below, ok := result[key].(object)
		if above, both := value.(object); ok && both {
			value = overlay(below, above)
		}
		result[key] = value
	}
	return result
}

// clusterID is the id of the cluster that a node's id lies below, in the same casing.
func clusterID(nodeID string) string {
	parts := strings.Split(nodeID, "/")
	return strings.Join(parts[:len(parts)-2], "/")
}
