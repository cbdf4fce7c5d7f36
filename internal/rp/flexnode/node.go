// Package flexnode holds what the provider knows of flex nodes and decides about them: nodes and
// their revisions, clusters and the facts that nodes receive of them. It is pure: values in, values
// out. Times are arguments, and nothing is read or written.
package flexnode

import (
	"slices"
	"strconv"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// Node is a flexNodeConfig resource. It points to revisions of its configuration (History).
type Node struct {
	// ID is the ARM id in the casing of the last PUT. UID is made with the resource and never
	// changes: an owner who deletes a node and makes another of the same name has two nodes.
	ID  string `json:"id"`
	UID string `json:"uid"`
	// Desired holds the owner's settings, without secrets; Chosen what the provider has chosen.
	Desired api.Desired `json:"desired"`
	Chosen  Chosen      `json:"chosen"`
	// Revision is the configVersion of the revision that the owner wants; 0 until its cluster has
	// been reached. Assigned is the one that agents are offered (Admit): the ETag is made of both.
	Revision int64 `json:"revision,omitempty"`
	Assigned int64 `json:"assigned,omitempty"`
	// Failed is the desired revision, if the node's agent has reported that it has failed, Insisted
	// if a person wants the node to try it whatever others have failed.
	Failed   int64 `json:"failed,omitempty"`
	Insisted int64 `json:"insisted,omitempty"`
	// Attempt is the last change it was admitted to, FailedChanges the last ones it has failed
	// (Admit).
	Attempt       *Attempt `json:"attempt,omitempty"`
	FailedChanges []string `json:"failedChanges,omitempty"`
	// Asks is the revision that the agent asks to begin with, and waits for (Begin).
	Asks int64 `json:"asks,omitempty"`
	// Unreleased is the revision that the node runs and the store does not know, since it was restored
	// from a backup: the node is offered nothing until its owner changes it.
	Unreleased int64 `json:"unreleased,omitempty"`
	// Facts is the layer of facts of Revision. Tried is the version of the cluster with which, and
	// with these facts, a node could not be rendered that never was.
	Facts string `json:"facts,omitempty"`
	Tried string `json:"tried,omitempty"`
	// Floor is the lower bound of the first revision, until there is one: every PUT raises it.
	Floor int64 `json:"floor,omitempty"`
	// SecretVersion names the present client secret; 0 is none. Later ones are greater.
	SecretVersion int64 `json:"secretVersion,omitempty"`
	// State is the provisioningState, "" is Succeeded; Reason tells why it is Failed, or, of one
	// that has a configuration, why it has no credential.
	State  string `json:"state,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Credential is the key of the credential that a machine may join with now.
	Credential string `json:"credential,omitempty"`
	// Joining are the keys of those before, oldest first, that machines still join with.
	Joining []string `json:"joining,omitempty"`
	// Used tells that a machine has used a credential of the node, be it in vain.
	Used bool `json:"used,omitempty"`
	// Ended describes the end of the last credential, if no machine has joined with it.
	Ended *JoinEnd `json:"ended,omitempty"`
	// Identity is the node's identity when it polls (IdentityOf). Former holds those before, by
	// which its agent reads the new one, until that was seen.
	Identity string `json:"identity,omitempty"`
	Former   Former `json:"former,omitempty"`
	// Principal is the object id of the identity in Azure that the node joins with, as a token or the
	// node's machine has told it; the owner may say another (PrincipalID).
	Principal string `json:"principal,omitempty"`
	// MachineKey is the thumbprint of the key of the node's machine, with which it signs requests;
	// "" until one has registered (Register). Enrolment is the id of the enrolment secret that
	// registers one, once; "" for none. Second is another machine that wanted to be the node, or one
	// with the same key; Boots tell those apart.
	MachineKey string         `json:"machineKey,omitempty"`
	Enrolment  string         `json:"enrolment,omitempty"`
	Second     *SecondMachine `json:"second,omitempty"`
	Boots      Boots          `json:"boots,omitzero"`
	// LeftArc is the thumbprint of the key of the machine that has left Azure Arc; "" for none.
	LeftArc string `json:"leftArc,omitempty"`
	// Diagnose is the request to the agent, until it has answered.
	Diagnose   *Diagnose      `json:"diagnose,omitempty"`
	SystemData api.SystemData `json:"systemData"`
}

// Chosen holds the provider's choices, kept until the owner asks for something else.
type Chosen struct {
	Versions api.Versions `json:"versions"`
	PodCIDR  string       `json:"podCIDR,omitempty"`
}

// ETag identifies what agents are offered, and what an owner has read; not the status.
func (n Node) ETag() string {
	if n.Revision == 0 {
		return ETag(n.UID, 0, n.Floor)
	}
	return ETag(n.UID, n.Assigned, n.Revision)
}

// Lost returns the revision that a node runs and the store does not know; 0 for none. A later one
// than all that are known was made after the backup that the store was restored from.
func (n Node) Lost(applied int64) int64 {
	if n.Unreleased == 0 && n.Revision != 0 && applied > n.newest() {
		return applied
	}
	return n.Unreleased
}

// IsLater reports whether an ETag is of a revision of the node that the store does not know (Lost).
func (n Node) IsLater(etag string) bool {
	own, _ := offerOf(n.ETag())
	uid, number := offerOf(etag)
	assigned, err := strconv.ParseInt(number, 10, 64)
	return uid == own && err == nil && n.Revision != 0 &&
		(assigned > n.newest() || n.Unreleased != 0 && assigned >= n.Unreleased)
}

// SameOffer reports whether agents are offered the same by the nodes of two ETags.
func SameOffer(a, b string) bool {
	uid, assigned := offerOf(a)
	ofB, assignedB := offerOf(b)
	return assigned != "" && uid == ofB && assigned == assignedB
}

// offerOf returns the parts of an ETag that tell what agents are offered.
func offerOf(etag string) (uid, assigned string) {
	uid, rest, _ := strings.Cut(strings.Trim(strings.TrimPrefix(etag, "W/"), `"`), "-")
	assigned, _, _ = strings.Cut(rest, "-")
	return uid, assigned
}

// ETag is that of a node with a uid, an assigned and a desired revision.
func ETag(uid string, assigned, desired int64) string {
	short, _, _ := strings.Cut(uid, "-")
	tag := make([]byte, 0, 48) // each poll makes one
	tag = append(append(append(tag, '"'), short...), '-')
	tag = strconv.AppendInt(tag, assigned, 10)
	if assigned != desired {
		tag = strconv.AppendInt(append(tag, '-'), desired, 10)
	}
	return string(append(tag, '"'))
}

// Keys of rows are in lower case: "<subscription>/<group>/<cluster>" for a cluster, and below that
// one part more for its nodes, credentials and whatever else is its own.

// ClusterOf is the key of the cluster of a row: the first three parts of its key.
func ClusterOf(key string) string {
	at := 0
	for range 3 {
		next := strings.IndexByte(key[at:], '/')
		if next < 0 {
			return key
		}
		at += next + 1
	}
	return key[:at-1]
}

// LastOf is the last part of a key, such as the name of a node.
func LastOf(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

// Taint keeps pods off a Node.
type Taint struct{ Key, Value, Effect string }

// ReadTaint reads a taint as an owner writes it: key=value:Effect or key:Effect.
func ReadTaint(s string) Taint {
	pair, effect, _ := strings.Cut(s, ":")
	key, value, _ := strings.Cut(pair, "=")
	return Taint{key, value, effect}
}

// String is the one way in which a taint is written here.
func (t Taint) String() string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
}

// Taints are those that the provider keeps on a node's Node: what its owner wants, in order,
// without the ones of Kubernetes itself, which its controllers set and take away.
func Taints(d api.Desired) []string {
	var list []string
	for _, text := range d.NodeConfig.Taints {
		t := ReadTaint(text)
		prefix, _, _ := strings.Cut(t.Key, "/")
		owned := func(domain string) bool { return strings.HasSuffix("."+prefix, "."+domain) }
		if !owned("kubernetes.io") && !owned("k8s.io") {
			list = append(list, t.String())
		}
	}
	slices.Sort(list)
	return list
}
