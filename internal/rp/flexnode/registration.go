package flexnode

import (
	"net/netip"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

// ClusterType is the resource type of target clusters.
const ClusterType = "Microsoft.ContainerService/managedClusters"

// CheckCluster checks what a caller wants of the registration of a cluster; old is nil for one that
// is made.
func CheckCluster(c api.ManagedCluster, old *Cluster) Problems {
	var problems Problems
	p := c.Properties
	problems.unless(isLocation(c.Location), "location",
		"The location '%s' is not an Azure region, such as westeurope.", shorten(c.Location))
	problems.unless(p.Kubeconfig == "" || isFileName(p.Kubeconfig), "properties.kubeconfig",
		"This names one of the provider's kubeconfigs: letters, digits, '.', '_' and '-'.")
	problems.unless(p.ServerURL == "" || isServerURL(p.ServerURL), "properties.serverUrl",
		"This is not an https URL of a host, perhaps with a port.")
	_, err := netip.ParseAddr(p.DNSServiceIP)
	problems.unless(p.DNSServiceIP == "" || err == nil, "properties.dnsServiceIP",
		"This is not an IP address.")
	if p.PodCIDR != "" || p.NodeCIDRMask != 0 {
		problems.pool(p.PodCIDR, p.NodeCIDRMask)
	}
	_, wrong := ReadPolicy(p.RolloutPolicy)
	if problems = append(problems, wrong...); old == nil {
		return problems
	}
	was := old.Properties
	problems.unless(was.PodCIDR == "" || was.PodCIDR == p.PodCIDR &&
		was.NodeCIDRMask == p.NodeCIDRMask, "properties.podCidr", "The pod network cannot be "+
		"changed: nodes have subnets of it. (PropertyChangeNotAllowed)")
	return problems
}

// maxPoolBits bounds how many subnets a pool may have.
const maxPoolBits = 24

// pool checks the network that nodes get their pod subnets of.
func (p *Problems) pool(pool string, mask int) {
	network, err := netip.ParsePrefix(pool)
	if err != nil || network != network.Masked() {
		p.add("properties.podCidr", "This is not a network in CIDR notation, such as 10.244.0.0/16.")
		return
	}
	low, high := network.Bits(), min(network.Addr().BitLen()-2, network.Bits()+maxPoolBits)
	p.unless(low <= mask && mask <= high, "properties.nodeCidrMask", "The mask of a node's subnet "+
		"is between %d, that of podCidr, and %d.", low, high)
}

// ShownCluster is the registration of a cluster as callers see it.
func ShownCluster(c Cluster) api.ManagedCluster {
	id, _ := arm.Parse(c.ID)
	system := c.SystemData
	shown := api.ManagedCluster{
		ID: c.ID, Name: id.Name(), Type: ClusterType, Location: c.Location, Tags: c.Tags,
		ETag: `"` + c.Version + `"`, SystemData: &system, Properties: c.Properties,
	}
	shown.Properties.Message = c.Probe.Message()
	switch state := &shown.Properties.ProvisioningState; {
	case c.Deleting():
		*state = api.Deleting
	case *state != "":
	case c.Facts == "":
		*state = api.Creating
	default:
		*state = api.Succeeded
	}
	return shown
}
