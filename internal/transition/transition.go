// Package transition holds the change from one node to another as a value, which is stored before
// each phase begins: after a crash the next process continues in the recorded phase. The phases are
// functions of the agent; this package defines their order and the consequences of a failure.
package transition

import (
	"slices"
	"time"
)

// Kind is the purpose of a transition.
type Kind string

// The kinds.
const (
	Join     Kind = "join"     // the machine becomes a node
	Change   Kind = "change"   // a healthy node changes to another generation
	Repair   Kind = "repair"   // the node is restored to its applied state
	Rollback Kind = "rollback" // a failed change is undone
	Leave    Kind = "leave"    // the machine stops being a node
)

// Phase is one part of a transition.
type Phase string

// The phases. Each can be repeated after an interruption.
const (
	Prefetch Phase = "prefetch" // fetch and verify artifacts
	Enrol    Phase = "enrol"    // connect the machine to Azure Arc, and wait for its roles
	Prove    Phase = "prove"    // check that issuer and API server accept the credential
	Ask      Phase = "ask"      // ask the provider whether the node may be disrupted
	Cordon   Phase = "cordon"   // cordon the Node
	Drain    Phase = "drain"    // drain its pods to other nodes
	Apply    Phase = "apply"    // change the machine
	Restore  Phase = "restore"  // change the machine back, without any network
	Gate     Phase = "gate"     // wait until the node has proved to be healthy
	Commit   Phase = "commit"   // record the generation as healthy
	Farewell Phase = "farewell" // delete the Node object and the resources in Azure
	Undo     Phase = "undo"     // undo everything in the ledger
	Erase    Phase = "erase"    // remove the agent's own records
)

// table lists the phases of each kind. A join's prefetch only starts the downloads.
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
	From    string    `json:"from,omitempty"`
	To      string    `json:"to,omitempty"`
	Phase   Phase     `json:"phase"`
	Attempt int       `json:"attempt"` // counts the processes that have worked on it
	Began   time.Time `json:"began"`
	Drains  bool      `json:"drains,omitempty"` // drain the node before changing the machine
	// Asks is the provider's configVersion to ask for before disrupting the node, until the provider
	// has agreed; "" to not ask. So a change that has begun never asks again.
	Asks string `json:"asks,omitempty"`
	// Touched is set if the machine differs from the applied state: this transition, or one that it
	// follows, has begun to change it. Then a failure in any phase is rolled back.
	Touched bool `json:"touched,omitempty"`
	// Follows is the kind of the unfinished transition that this one replaced.
	Follows Kind `json:"follows,omitempty"`
	// Unpressed is set if the Node surely was under no pressure before the machine was touched. Only
	// then the change, or one that it follows, is to blame for pressure.
	Unpressed bool `json:"unpressed,omitempty"`
	// Cordoned is set if this transition has cordoned the Node, and so must uncordon it.
	Cordoned bool `json:"cordoned,omitempty"`
	// Cluster is the API server for To, if it differs from the proved one.
	Cluster *Cluster `json:"cluster,omitempty"`
	// Rejoins is set if kubelet had lost its credential: it writes its kubeconfig when it joins again.
	Rejoins bool `json:"rejoins,omitempty"`
	// Ungated repairs do not wait for the gate, and repair only Things, if any.
	Ungated bool     `json:"ungated,omitempty"`
	Things  []string `json:"things,omitempty"`
	// ByHand is set if a person has asked for To, which differs from the configuration.
	ByHand bool     `json:"byHand,omitempty"`
	Cause  string   `json:"cause,omitempty"` // the reason; of a rollback, the failure
	Leave  *Options `json:"leave,omitempty"` // how the machine is given back
}

// Cluster is the address of an API server and the PEM certificates that verify it.
type Cluster struct {
	Server string `json:"server"`
	CA     string `json:"ca"`
}

// Options control how a machine stops being a node.
type Options struct {
	KeepArc      bool          `json:"keepArc,omitempty"` // keep the registration with Azure Arc
	DrainTimeout time.Duration `json:"drainTimeout"`      // 0 does not drain
	// KeepUnmanaged evicts no pods without a controller, KeepEmptyDir none with data in an emptyDir.
	KeepUnmanaged bool `json:"keepUnmanaged,omitempty"`
	KeepEmptyDir  bool `json:"keepEmptyDir,omitempty"`
	// Waits leaves the agent's service enabled, to wait for another configuration.
	Waits   bool   `json:"waits,omitempty"`
	Deleted string `json:"deleted,omitempty"` // the uid of the resource whose deletion is the cause
}

// GoesBack reports whether it returns to an earlier state, and so is finished whatever is wanted.
func (t Transition) GoesBack() bool { return t.Kind == Rollback || t.ByHand }

// Moves reports whether it only changes the API server of the node.
func (t Transition) Moves() bool { return t.Kind == Change && t.To == t.From }

// Back returns the rollback of a failed change.
func (t Transition) Back(cause error, now time.Time) Transition {
	return Transition{
		Kind: Rollback, From: t.To, To: t.From, Phase: Restore, Began: now,
		Cordoned: t.Cordoned, Cause: cause.Error(),
	}
}
