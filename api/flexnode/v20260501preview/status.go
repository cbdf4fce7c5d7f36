package v20260501preview

import (
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
)

// Status is what the node and its cluster say of it.
type Status struct {
	// Conditions are Ready as the cluster says, those that the provider derives, and those that the
	// agent reports.
	Conditions           []Condition `json:"conditions,omitempty"`
	LastConfigApplied    *time.Time  `json:"lastConfigApplied,omitempty"`
	AppliedConfigVersion string      `json:"appliedConfigVersion,omitempty"`
	AgentVersion         string      `json:"agentVersion,omitempty"`
	LastSeen             *time.Time  `json:"lastSeen,omitempty"`
	Join                 *Join       `json:"join,omitempty"`
	Components           *Components `json:"components,omitempty"`
	Config               *Applied    `json:"config,omitempty"`
	Drift                *Drift      `json:"drift,omitempty"`
}

// The states of a Join.
const (
	JoinPending  = "pending"  // what a machine joins with is being made
	JoinReady    = "ready"    // a machine can join
	JoinConsumed = "consumed" // a machine has used it, and its Node is not there yet
	JoinJoined   = "joined"   // the Node is there
	JoinDenied   = "denied"   // a machine asked for a certificate and was refused
	JoinExpired  = "expired"  // no machine has used it in time
)

// Join is how far a machine has come with joining.
type Join struct {
	State   string     `json:"state"`
	Expires *time.Time `json:"expires,omitempty"`
	Reason  string     `json:"reason,omitempty"` // for people
}

// What agents send and receive, of which a Status has parts.
type (
	Condition    = agentapi.Condition
	Components   = agentapi.Components
	Applied      = agentapi.Applied
	FailedConfig = agentapi.FailedConfig
	Drift        = agentapi.Drift
	DriftItem    = agentapi.DriftItem
	Report       = agentapi.Report
	BeginChange  = agentapi.BeginChange
	ChangeBegun  = agentapi.ChangeBegun
	Diagnosed    = agentapi.Diagnosed
	Finding      = agentapi.Finding
	RegisterKey  = agentapi.RegisterKey
	KubeletProof = agentapi.KubeletProof
	Refresh      = agentapi.Refresh
	Refreshed    = agentapi.Refreshed
	Leave        = agentapi.Leave
	ArcLeft      = agentapi.ArcLeft
	LeaveSecret  = agentapi.LeaveSecret
	Signature    = agentapi.Signature
	Tombstone    = agentapi.Tombstone
)
