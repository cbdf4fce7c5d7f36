package flexnode

import (
	"encoding/json"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

// Problem is one thing that is wrong with a request: a JSON path and what to do.
type Problem struct{ Target, Message string }

// Problems are all the things that are wrong with a request.
type Problems []Problem

// Error lists the problems.
func (p Problems) Error() string { return "" }

// ARM is the answer to a request with problems: 400, with the place of each.
func (p Problems) ARM() *arm.Error { return nil }

// Decode reads a JSON body without unknown members, names that are given twice, and nesting without
// end. An empty body is an error. Errors are of type *arm.Error.
func Decode(body []byte, into any) error { return nil }

// DecodeOptional is Decode for bodies that may be empty.
func DecodeOptional(body []byte, into any) error { return nil }

// ReadPut reads the body of a PUT of a node with an id: what its owner wants, without the client
// secret, and that secret. The body may be what a GET has shown, in whatever state the node is.
// The error is of type *arm.Error or Problems.
func ReadPut(body []byte, id string) (api.Desired, string, error) { return api.Desired{}, "", nil }

// WithoutSecret takes the client secret out of what an owner wants.
func WithoutSecret(d api.Desired) (api.Desired, string) { return d, "" }

// IdentityOf is who a node is when it polls: "app:<tenant>/<client id>", "oid:<tenant>/<object id>"
// or "mirid:<resource id>", in lower case; "" is nobody. tenant is that of the cluster.
func IdentityOf(id string, d api.Desired, tenant string) string { return "" }

// MachineOf is the id of a node's Arc machine: the one that the owner names, else that of the
// node's name in the cluster's resource group.
func MachineOf(id string, d api.Desired) string { return "" }

// DefaultsLayer is what the operator of the provider gives every node, as canonical JSON; nil for
// nothing.
func DefaultsLayer(defaults map[string]any) []byte { return nil }

// FactsLayer is what the nodes of a cluster are told of it, as canonical JSON.
func FactsLayer(f Facts, clusterID string) []byte { return nil }

// FactsOf reads facts back from their layer.
func FactsOf(layer []byte) (Facts, error) { return Facts{}, nil }

// OwnLayer is what a node has for itself, as canonical JSON, without secrets.
func OwnLayer(n Node) json.RawMessage { return nil }

// Grants are the secrets of a node; without them a configuration has none.
type Grants struct {
	ClientSecret string
	Token        string // bootstrap token, id.secret
}

// Config is the agent's configuration of a revision: its own layer over the facts over the
// defaults, and the secrets that are given.
func Config(r Revision, defaults, facts []byte, g Grants) (map[string]any, error) { return nil, nil }

// Parent is the cluster of a node and what a revision is rendered with now.
type Parent struct {
	Cluster Cluster
	// FactsLayer is the layer that Cluster.Facts names; nil when it was never reached.
	FactsLayer []byte
	// DefaultsID and Defaults are the layer of the operator's defaults; "" and nil for none.
	DefaultsID string
	Defaults   []byte
}

// Secret is what is known of the client secret of a node.
type Secret struct {
	Version int64 // of the stored one
	Known   bool  // there is a stored one
	Same    bool  // the given one is equal to it
}

// Put is what a PUT asks for.
type Put struct {
	ID      string // in the caller's casing
	Desired api.Desired
	// SecretGiven tells that there is a client secret in the request, URL that a URL is asked for.
	SecretGiven, URL bool
	By, ByType       string
	At               time.Time
	NewUID           string // for a node that is made
	Renderer         string
	// Subnet is the pod subnet that was reserved after Decision.NeedsSubnet.
	Subnet string
}

// Decision is what a PUT makes of a node.
type Decision struct {
	Node Node
	// Revision is the new configuration; nil when it stays, or cannot be rendered yet.
	Revision *Revision
	// Changed tells that what is wanted has changed: what a machine could join with is revoked.
	Changed bool
	// Write tells that the row of the node is another one: Changed, or its id has another casing,
	// or a URL was asked for.
	Write bool
	// StoreSecret has the given client secret stored as Node.SecretVersion, DropSecret has the
	// stored one deleted.
	StoreSecret, DropSecret bool
	// NeedsSubnet asks to reserve a pod subnet, and to call Decide again with it. Nothing else of
	// the decision holds then.
	NeedsSubnet bool
}

// Decide is a PUT: what the node is then. old is nil for one that is made, last is the revision
// that its owner wants, nil if it was never rendered; stone is the tombstone of a former node of
// that name, or nil.
func Decide(
	p Put, old *Node, last *Revision, stone *Tombstone, parent Parent, secret Secret,
) (Decision, Problems) {
	return Decision{}, nil
}

// Refresh renders a node again after the facts of its cluster have changed: nothing but that layer
// is replaced. A node that was never rendered is resolved and rendered, or Failed with a Reason.
// The revision is nil when there is no new one.
func Refresh(
	n Node, last *Revision, parent Parent, at time.Time, renderer string,
) (Node, *Revision) {
	return n, nil
}

// CheckDefaults lists what would be wrong with every node because of the operator's defaults.
func CheckDefaults(defaults map[string]any) []string { return nil }

// CheckCluster checks what a caller wants of the registration of a cluster; old is nil for one that
// is made.
func CheckCluster(c api.ManagedCluster, old *Cluster) Problems { return nil }

// CheckReport checks what an agent says of its node.
func CheckReport(r api.Report) Problems { return nil }

// Shown is a node as callers see it. r and config are the revision that is shown; nil in a list.
func Shown(
	n Node, r *Revision, config map[string]any, status *api.Status,
) api.FlexNodeConfig {
	return api.FlexNodeConfig{}
}

// ShownCluster is the registration of a cluster as callers see it.
func ShownCluster(c Cluster) api.ManagedCluster { return api.ManagedCluster{} }

// StatusOf is what is known of a node: what its agent and its cluster say, and when it was last
// seen; nil for nothing. While the cluster does not answer, Ready is Unknown.
func StatusOf(s Status, seen time.Time, clusterReachable bool, now time.Time) *api.Status {
	return nil
}

// Slot is the n-th place to try for a node's pod subnet: the key of its row and the subnet. The
// first one is where the node's name points to, so that a node that comes back mostly gets the
// subnet that it had. False: there are only n places.
func Slot(cluster, node, pool string, mask, n int) (key, subnet string, ok bool) {
	return "", "", false
}

// Slots is how many subnets of mask bits a pool has.
func Slots(pool string, mask int) int { return 0 }

// SlotOf is the key of the row of a pod subnet; "" when it is not of that pool.
func SlotOf(cluster, pool, subnet string) string { return "" }
