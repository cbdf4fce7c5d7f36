// Package transition holds the change from one node to another as a value, which is on disk before
// each phase begins: a process that dies continues in the recorded phase. The phases are functions
// of the agent; this package knows their order and what follows when one fails.
package transition

import (
	"slices"
	"time"
)

// Kind names the purpose of a transition.
type Kind string

// The kinds.
const (
	Join     Kind = "join"     // the machine becomes a node
	Change   Kind = "change"   // a healthy node becomes another one
	Repair   Kind = "repair"   // the node becomes again what was applied
	Rollback Kind = "rollback" // a failed change goes back to what was applied
	Leave    Kind = "leave"    // the machine stops being a node
)

// Phase is one part of a transition.
type Phase string

// The phases. Each can be carried out again after it was interrupted.
const (
	Prefetch Phase = "prefetch" // artifacts are fetched and verified
	Enrol    Phase = "enrol"    // the machine is connected to Azure Arc and has its roles
	Prove    Phase = "prove"    // the credential is accepted by issuer and API server
	Ask      Phase = "ask"      // the provider lets the node be disrupted
	Cordon   Phase = "cordon"   // the Node takes no new pods
	Drain    Phase = "drain"    // its pods move to other nodes
	Apply    Phase = "apply"    // the machine is changed
	Restore  Phase = "restore"  // the machine is changed back, without any network
	Gate     Phase = "gate"     // the node proves that it is healthy
	Commit   Phase = "commit"   // the generation is recorded as healthy
	Farewell Phase = "farewell" // the Node object and what is in Azure are deleted
	Undo     Phase = "undo"     // the machine goes back to what the ledger remembers
	Erase    Phase = "erase"    // the agent's own records go
)

// table has the phases of each kind. A join's prefetch only begins the downloads.
var table = map[Kind][]Phase{
	Join:     {Prefetch, Enrol, Apply, Gate, Commit},
	Change:   {Prefetch, Enrol, Prove, Ask, Cordon, Drain, Apply, Gate, Commit},
	Repair:   {Prefetch, Enrol, Apply, Gate, Commit},
	Rollback: {Restore, Gate, Commit},
	Leave:    {Drain, Farewell, Undo, Erase},
}

// Phases returns the phases of a kind in order.
func Phases(k Kind) []Phase { return slices.Clone(table[k]) }

// Transition is one change under way.
type Transition struct {
	Kind Kind `json:"kind"`
	// From and To are ids of generations. From is "" for a first join, To for leaving.
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
	Phase Phase  `json:"phase"`
	// Attempt counts the processes that have worked on it.
	Attempt int       `json:"attempt"`
	Began   time.Time `json:"began"`
	Drains  bool      `json:"drains,omitempty"` // the pods move away before the machine is changed
	// Asks is the provider's configVersion that the node is disrupted for, until the provider has
	// agreed to that; "" for what does not ask. So what has begun never asks again.
	Asks string `json:"asks,omitempty"`
	// Touched reports that the machine is not what was applied: a change was applied to it, by this
	// transition or by one that it follows. Then a failure is rolled back in whatever phase.
	Touched bool `json:"touched,omitempty"`
	// Follows is the kind of the transition that this one replaced before its end.
	Follows Kind `json:"follows,omitempty"`
	// Cordoned tells that this transition has cordoned the Node, and so uncordons it.
	Cordoned bool `json:"cordoned,omitempty"`
	// Cluster is where the API server is for To, when that differs from what was proved.
	Cluster *Cluster `json:"cluster,omitempty"`
	// Ungated repairs do not wait for the gate, and repair only Things, if any.
	Ungated bool     `json:"ungated,omitempty"`
	Things  []string `json:"things,omitempty"`
	// ByHand tells that a person has asked for To, which is not what the configuration says.
	ByHand bool     `json:"byHand,omitempty"`
	Cause  string   `json:"cause,omitempty"` // why: of a rollback, what failed
	Leave  *Options `json:"leave,omitempty"` // says how the machine is given back
}

// Cluster is the address of an API server and the PEM certificates that it is verified with.
type Cluster struct {
	Server string `json:"server"`
	CA     string `json:"ca"`
}

// Options say how a machine stops being a node.
type Options struct {
	KeepArc bool `json:"keepArc,omitempty"` // leaves the machine registered with Azure Arc
	// DrainTimeout bounds the wait for pods to move; 0 does not drain.
	DrainTimeout time.Duration `json:"drainTimeout"`
	// KeepUnmanaged evicts no pod that nothing replaces, KeepEmptyDir none with data in emptyDir.
	KeepUnmanaged bool `json:"keepUnmanaged,omitempty"`
	KeepEmptyDir  bool `json:"keepEmptyDir,omitempty"`
	// Waits leaves the agent's service enabled: it waits for another configuration.
	Waits bool `json:"waits,omitempty"`
	// Deleted is the uid of the resource whose deletion is the cause.
	Deleted string `json:"deleted,omitempty"`
}

// GoesBack reports whether it leads back to what was, and so is finished whatever is wanted.
func (t Transition) GoesBack() bool { return t.Kind == Rollback || t.ByHand }

// Back returns the rollback of a change that failed.
func (t Transition) Back(cause error, now time.Time) Transition {
	return Transition{
		Kind: Rollback, From: t.To, To: t.From, Phase: Restore, Began: now,
		Cordoned: t.Cordoned, Cause: cause.Error(),
	}
}
