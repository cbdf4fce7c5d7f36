package flexnode

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// Cluster is a target cluster.
type Cluster struct {
	ID         string            `json:"id"`
	UID        string            `json:"uid"`
	Location   string            `json:"location"`
	Tags       map[string]string `json:"tags,omitempty"`
	Properties ClusterProperties `json:"properties"`
	// Facts is the id of the layer of facts for nodes (FactsLayer); "" until the cluster is reached.
	Facts string `json:"facts,omitempty"`
	// APIServer identifies the API server: the uid of the Service default/kubernetes, and the CA.
	APIServer string `json:"apiServer,omitempty"`
	// Probe holds the findings of the last probe.
	Probe Probe `json:"probe,omitzero"`
	// SubnetsEpoch is the store's epoch when its Nodes' pod subnets were noted (PodCIDRs); 0 is never.
	SubnetsEpoch int64 `json:"subnetsEpoch,omitempty"`
	// Version changes with the desired state of the registration.
	Version string `json:"version"`
	// Deletion is set while the registration is being deleted: no node can be added.
	Deletion   *Deletion      `json:"deletion,omitempty"`
	SystemData api.SystemData `json:"systemData"`
}

// Deleting reports whether the registration is being deleted.
func (c Cluster) Deleting() bool { return c.Deletion != nil }

// Deletion describes how a registration is being deleted.
type Deletion struct {
	// Operation is the id of the asynchronous operation. Wipe has the machines of its nodes
	// unbootstrap: only then do agents get a tombstone.
	Operation string `json:"operation"`
	Wipe      bool   `json:"wipe,omitempty"`
	// Emptied reports that no node is left: from then on the deletion cannot be aborted.
	Emptied bool      `json:"emptied,omitempty"`
	Since   time.Time `json:"since"`
	By      string    `json:"by"`
	// Wiped is the number of nodes deleted since Turn, the begin of a turn of wipePause.
	Wiped int       `json:"wiped,omitempty"`
	Turn  time.Time `json:"turn,omitzero"`
}

// wipePause is the time in which at most MaxUnavailable machines are wiped.
const wipePause = time.Minute

// Take returns the number of nodes, of those left and of total, that may be deleted now, with the
// deletion that counts them; with none, the time at which more may be. With Wipe, MaxUnavailable of
// the rollout policy go each minute. A clock that was set back begins another turn.
func (d Deletion) Take(
	policy Policy, left, total int, now time.Time,
) (next Deletion, n int, again time.Time) {
	if !d.Wipe {
		return d, left, now
	}
	if past := now.Sub(d.Turn); past < 0 || past >= wipePause {
		d.Turn, d.Wiped = now, 0
	}
	n = min(left, max(0, policy.MaxUnavailable.Of(total)-d.Wiped))
	d.Wiped += n
	return d, n, d.Turn.Add(wipePause)
}

// Facts holds the facts about their cluster that nodes receive.
type Facts struct {
	ServerURL    string `json:"serverURL"`
	CACertData   string `json:"caCertData"` // base64 of PEM
	DNSServiceIP string `json:"dnsServiceIP,omitempty"`
	TenantID     string `json:"tenantId,omitempty"`
	Location     string `json:"location"`
}

// Subscription is the state of a subscription as ARM reported it (RPC, subscription lifecycle).
type Subscription struct {
	State            string          `json:"state"`
	RegistrationDate string          `json:"registrationDate,omitempty"`
	Properties       json.RawMessage `json:"properties,omitempty"`
}

// Status holds the reports about a node by its agent and its cluster. Seen times are kept apart.
type Status struct {
	Report api.Report `json:"report"`
	// Signed is the time at which the machine signed the report, by its own clock, Taken the time
	// at which it was written; zero without a key.
	Signed time.Time `json:"signed,omitzero"`
	Taken  time.Time `json:"taken,omitzero"`
	// Ready is the Ready condition of the Node object, Unknown when the Node was deleted. It stays
	// unchanged while the cluster does not answer; StatusOf shows Unknown then.
	Ready *api.Condition `json:"ready,omitempty"`
	// Taints lists, in order, the taints that the provider has set on the Node, is about to set, or
	// registered it with: these it may remove.
	Taints []string `json:"taints,omitempty"`
}

// tokenHolds is the max lifetime of a machine's token.
const tokenHolds = 6 * time.Minute

// Follows reports whether a report signed at a time may replace the stored one. An earlier one is a
// replay as long as its token is valid; after that, the machine's clock was set back.
func (s Status) Follows(signed, now time.Time) bool {
	return !signed.Before(s.Signed) || now.Sub(s.Taken) > tokenHolds
}

// Operation is an asynchronous operation (RPC, asynchronous operations).
type Operation struct {
	// Target is the id of its resource; Kind deleteCluster, putCluster, putNode or regenerateToken.
	Target string `json:"target"`
	Kind   string `json:"kind"`
	// UID is the target's; Credential is the key of the credential being issued for it.
	UID        string `json:"uid,omitempty"`
	Credential string `json:"credential,omitempty"`
	// State is InProgress, Succeeded or Failed.
	State   string    `json:"state"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	// Total and Done count nodes; Code and Message hold the error of a failed operation.
	Total   int    `json:"total,omitempty"`
	Done    int    `json:"done,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// By is the object id of the caller, who may read it.
	By string `json:"by,omitempty"`
}

// Probe holds the provider's own findings about a cluster.
type Probe struct {
	// Since is when Properties.Reachable last changed, Unreachable the reason that it is false.
	Since       time.Time `json:"since,omitzero"`
	Unreachable string    `json:"unreachable,omitempty"`
	// Refused is the reason that the registration is Failed: another one has the API server.
	Refused string `json:"refused,omitempty"`
	// Warnings lists changes that the operator of the cluster should make.
	Warnings []string `json:"warnings,omitempty"`
}

// Message returns the message for the owner of the registration; "" for nothing.
func (p Probe) Message() string {
	parts := append([]string{p.Refused, p.Unreachable}, p.Warnings...)
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	return strings.Join(parts, " ")
}

// ClusterType is the resource type of target clusters.
const ClusterType = "Microsoft.ContainerService/managedClusters"

const maxServerURL = 300 // the bytes of a URL: the longest name, and a port

// CheckCluster checks the wanted registration of a cluster; old is nil for a new one.
func CheckCluster(c api.ManagedCluster, old *Cluster) Problems {
	var problems Problems
	p := PropertiesOf(c.Properties)
	problems.unless(isLocation(c.Location), "location",
		"The location '%s' is not an Azure region, such as westeurope.", shorten(c.Location))
	problems.unless(p.Kubeconfig == "" || isFileName(p.Kubeconfig), "properties.kubeconfig",
		"This must be the name of one of the provider's kubeconfigs: letters, digits, '.', '_' and '-'.")
	problems.unless(p.ServerURL == "" || isServerURL(p.ServerURL) && len(p.ServerURL) <= maxServerURL,
		"properties.serverUrl", "This is not an https URL of a host, optionally with a port, of at "+
			"most %d bytes.", maxServerURL)
	problems.unless(p.DNSServiceIP == "" || config.IsDNS(p.DNSServiceIP), "properties.dnsServiceIP",
		"This is not the IP address of a service.")
	if p.PodCIDR != "" || p.NodeCIDRMask != 0 {
		problems.pool(p.PodCIDR, p.NodeCIDRMask)
	}
	_, wrong := ReadPolicy(p.RolloutPolicy)
	if problems = append(problems, wrong...); old == nil {
		return problems
	}
	was := old.Properties
	problems.unless(Region(c.Location) == Region(old.Location), "location",
		"The location '%s' cannot be changed. (PropertyChangeNotAllowed)", old.Location)
	problems.unless(was.PodCIDR == "" || old.SamePool(Cluster{Properties: p}), "properties.podCidr",
		"The pod network cannot be changed: nodes have subnets of it. (PropertyChangeNotAllowed)")
	return problems
}

// Region returns the name of an Azure region in Azure's form, without capitals and blanks.
func Region(location string) string {
	return strings.ToLower(strings.ReplaceAll(location, " ", ""))
}

// SamePool reports whether two registrations have the same pod network.
func (c Cluster) SamePool(other Cluster) bool {
	return c.Properties.PodCIDR == other.Properties.PodCIDR &&
		c.Properties.NodeCIDRMask == other.Properties.NodeCIDRMask
}

// maxPoolBits limits a pool to 2^24 subnets.
const maxPoolBits = 24

func (p *Problems) pool(pool string, mask int) {
	network, err := netip.ParsePrefix(pool)
	if err != nil || network != network.Masked() {
		p.add("properties.podCidr", "This is not a network in CIDR notation, such as 10.244.0.0/16.")
		return
	}
	low, high := network.Bits(), min(network.Addr().BitLen()-3, network.Bits()+maxPoolBits)
	p.unless(low <= mask && mask <= high, "properties.nodeCidrMask", "The mask of a node's subnet "+
		"must be between %d, that of podCidr, and %d.", low, high)
}

// ShownCluster returns the registration of a cluster as callers see it.
func ShownCluster(c Cluster) api.ManagedCluster {
	id, _ := arm.Parse(c.ID)
	shown := api.ManagedCluster{
		ID: c.ID, Name: id.Name(), Type: ClusterType, Location: c.Location, Tags: c.Tags,
		ETag: `"` + c.Version + `"`, SystemData: new(c.SystemData), Properties: c.Properties.API(),
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
