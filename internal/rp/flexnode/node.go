// Package flexnode holds the provider's model of flex nodes and its decisions about them: nodes and
// their revisions, clusters and the facts about them that nodes receive. It is pure: values in,
// values out. Times are arguments, and nothing is read or written.
package flexnode

import (
	"slices"
	"strconv"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

// Node is a flexNodeConfig resource. It points to revisions of its configuration (History).
type Node struct {
	// ID is the ARM id in the casing of the last PUT. UID is made with the resource and never
	// changes: an owner who deletes a node and makes another of the same name has two nodes.
	ID  string `json:"id"`
	UID string `json:"uid"`
	// Desired holds the owner's settings, without secrets; Chosen the provider's choices.
	Desired Desired `json:"desired"`
	Chosen  Chosen  `json:"chosen"`
	// Revision is the configVersion of the desired revision; 0 until the cluster has been reached.
	// Assigned is the one that agents are offered (Admit). The ETag has both.
	Revision int64 `json:"revision,omitempty"`
	Assigned int64 `json:"assigned,omitempty"`
	// Failed is the desired revision if the node's agent has reported its failure, Insisted if a
	// person wants the node to try it regardless of failures elsewhere.
	Failed   int64 `json:"failed,omitempty"`
	Insisted int64 `json:"insisted,omitempty"`
	// Attempt is the last change it was admitted to, FailedChanges the last ones it has failed
	// (Admit).
	Attempt       *Attempt `json:"attempt,omitempty"`
	FailedChanges []string `json:"failedChanges,omitempty"`
	// Asks is the revision that the agent asks to begin, and waits for (Begin).
	Asks int64 `json:"asks,omitempty"`
	// Unreleased is a revision that the node runs but the store, restored from a backup, does not
	// know: the node is offered nothing until its owner changes it.
	Unreleased int64 `json:"unreleased,omitempty"`
	// Before is the newest revision before Revision, if that was made for new facts: a revision
	// between them was made after the backup that the store was restored from.
	Before int64 `json:"before,omitempty"`
	// Facts is the layer of facts of Assigned, or the later one with which Refresh has rendered the
	// node. A node that was never rendered has, after a failure, the facts here and the cluster's
	// version in Tried with which it failed.
	Facts string `json:"facts,omitempty"`
	Tried string `json:"tried,omitempty"`
	// Floor is the lower bound of the first revision, until there is one: every PUT raises it.
	Floor int64 `json:"floor,omitempty"`
	// SecretVersion names the present client secret; 0 is none. Later ones are greater.
	SecretVersion int64 `json:"secretVersion,omitempty"`
	// State is the provisioningState, "" is Succeeded. Reason is the cause of Failed or, with a
	// configuration, the reason that there is no credential.
	State  string `json:"state,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Credential is the key of the credential that a machine may join with now.
	Credential string `json:"credential,omitempty"`
	// Joining holds the keys of previous ones, oldest first, that machines still join with.
	Joining []string `json:"joining,omitempty"`
	// Used reports that a machine has used a credential of the node, successfully or not.
	Used bool `json:"used,omitempty"`
	// Ended describes the end of the last credential, if no machine has joined with it.
	Ended *JoinEnd `json:"ended,omitempty"`
	// Identity is the node's identity when it polls (IdentityOf). Former holds previous ones, with
	// which its agent reads the new one, until that was seen.
	Identity string `json:"identity,omitempty"`
	Former   Former `json:"former,omitempty"`
	// Principal is the object id of the Azure identity that the node joins with, from a token or from
	// the node's machine; the owner may set another (PrincipalID).
	Principal string `json:"principal,omitempty"`
	// MachineKey is the thumbprint of the key of the node's machine, with which it signs requests;
	// "" until one has registered (Register). Enrolment is the id of the enrolment secret that
	// registers one, once; "" for none. KeyEpoch is the store's epoch when that secret, or kubelet,
	// proved the key. Second is another machine that asked to be the node, or one with the same key;
	// Boots tell those apart.
	MachineKey string         `json:"machineKey,omitempty"`
	KeyEpoch   int64          `json:"keyEpoch,omitempty"`
	Enrolment  string         `json:"enrolment,omitempty"`
	Second     *SecondMachine `json:"second,omitempty"`
	Boots      Boots          `json:"boots,omitzero"`
	// LeftArc is the thumbprint of the key of the machine that has left Azure Arc; "" for none.
	LeftArc string `json:"leftArc,omitempty"`
	// Diagnose is the pending request to the agent; nil for none.
	Diagnose   *Diagnose      `json:"diagnose,omitempty"`
	SystemData api.SystemData `json:"systemData"`
}

// Chosen holds the provider's choices, kept until the owner asks for something else.
type Chosen struct {
	Versions Versions `json:"versions"`
	PodCIDR  string   `json:"podCIDR,omitempty"`
}

// ETag returns the ETag of the assigned and the desired revision. It does not cover the status.
func (n Node) ETag() string {
	paused := n.Desired.UpgradePolicy.Paused
	if n.Revision == 0 {
		return ETag(n.UID, 0, n.Floor, paused)
	}
	return ETag(n.UID, n.Assigned, n.Revision, paused)
}

// Lost returns the revision that a node runs but the store does not know; 0 for none.
func (n Node) Lost(applied int64) int64 {
	if n.Unreleased == 0 && n.unknown(applied) {
		return applied
	}
	return n.Unreleased
}

// unknown reports whether a version was made after the backup that the store was restored from: it
// is above all known ones, or only below one that was made for new facts since.
func (n Node) unknown(version int64) bool {
	skipped := n.Before != 0 && n.Before < version && version < n.Revision && version != n.Assigned
	return n.Revision != 0 && (version > n.newest() || skipped)
}

// IsLater reports whether an ETag is of a revision of the node that the store does not know (Lost).
func (n Node) IsLater(etag string) bool {
	own, _ := offerOf(n.ETag())
	uid, number := offerOf(etag)
	assigned, err := strconv.ParseInt(number, 10, 64)
	return uid == own && err == nil && n.Revision != 0 &&
		(n.unknown(assigned) || n.Unreleased != 0 && assigned >= n.Unreleased)
}

// SameOffer reports whether two ETags are of the same node and offer agents the same revision.
func SameOffer(a, b string) bool {
	uid, assigned := offerOf(a)
	ofB, assignedB := offerOf(b)
	return assigned != "" && uid == ofB && assigned == assignedB
}

// offerOf returns the parts of an ETag that identify the offer to agents.
func offerOf(etag string) (uid, assigned string) {
	uid, rest, _ := strings.Cut(strings.Trim(strings.TrimPrefix(etag, "W/"), `"`), "-")
	assigned, _, _ = strings.Cut(rest, "-")
	return uid, assigned
}

// ETag returns the ETag of a node with a uid, an assigned and a desired revision, and a pause,
// which makes no revision.
func ETag(uid string, assigned, desired int64, paused bool) string {
	short, _, _ := strings.Cut(uid, "-")
	etag := `"` + short + "-" + strconv.FormatInt(assigned, 10)
	if paused || assigned != desired {
		etag += "-" + strconv.FormatInt(desired, 10)
	}
	if paused {
		etag += "p"
	}
	return etag + `"`
}

// Keys of rows are in lower case: "<subscription>/<group>/<cluster>" for a cluster, and one part
// more for its nodes, credentials and other rows.

// KeyOf returns the key of the resource with an id; false for another id.
func KeyOf(id string) (string, bool) {
	parsed, err := arm.Parse(id)
	if err != nil || parsed.ResourceGroup == "" || len(parsed.Names) == 0 {
		return "", false
	}
	parts := append([]string{parsed.Subscription, parsed.ResourceGroup}, parsed.Names...)
	return arm.Fold(strings.Join(parts, "/")), true
}

// ClusterOf returns the key of the cluster of a row: the first three parts of its key.
func ClusterOf(key string) string {
	parts := strings.SplitN(key, "/", 4)
	return strings.Join(parts[:min(3, len(parts))], "/")
}

// LastOf returns the last part of a key or id, such as the name of a node.
func LastOf(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

// Taint keeps pods off a Node.
type Taint struct{ Key, Value, Effect string }

// ReadTaint reads a taint as an owner writes it: key=value:Effect or key:Effect.
func ReadTaint(s string) Taint {
	pair, effect, _ := strings.Cut(s, ":")
	key, value, _ := strings.Cut(pair, "=")
	return Taint{key, value, effect}
}

// String returns the canonical form of the taint.
func (t Taint) String() string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
}

// Taints returns the taints that the provider manages on a node's Node: those of its owner, sorted,
// without Kubernetes' own, which its controllers set and remove.
func Taints(d Desired) []string {
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
