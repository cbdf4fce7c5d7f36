package v20260501preview

import (
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
)

// Status holds the reports of the node and its cluster.
type Status struct {
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
	JoinPending  = "pending"  // the credentials for the join are being created
	JoinReady    = "ready"    // a machine can join
	JoinConsumed = "consumed" // a machine has used it, but there is no Node yet
	JoinJoined   = "joined"   // the Node exists
	JoinDenied   = "denied"   // a machine's certificate request was denied
	JoinExpired  = "expired"  // no machine has used it in time
)

// Join describes the progress of a machine's join.
type Join struct {
	State   string     `json:"state"`
	Expires *time.Time `json:"expires,omitempty"`
	Reason  string     `json:"reason,omitempty"` // for people
}

// Types that agents send and receive, and that a Status contains parts of.
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

// Names that agents and their provider use for diagnoses.
const (
	DiagnoseHeader = agentapi.DiagnoseHeader
	Doctor         = agentapi.Doctor
	SupportBundle  = agentapi.SupportBundle
)

// DiagnoseRequest is the body of diagnose.
type DiagnoseRequest struct {
	Kind string `json:"kind"` // doctor or supportBundle
}

// The states of a diagnosis.
const DiagnosisRequested, DiagnosisCompleted, DiagnosisRefused = "Requested", "Completed", "Refused"

// Diagnosis is the answer of diagnose and listDiagnosis: a node's last request and its answer.
type Diagnosis struct {
	ID            string     `json:"id"`
	Kind          string     `json:"kind"`
	State         string     `json:"state"`
	Message       string     `json:"message,omitempty"` // why the machine refuses
	Requested     time.Time  `json:"requested"`
	RequestedBy   string     `json:"requestedBy,omitempty"`
	Completed     *time.Time `json:"completed,omitempty"`
	Expires       time.Time  `json:"expires"` // when it is deleted
	Findings      []Finding  `json:"findings,omitempty"`
	SupportBundle []byte     `json:"supportBundle,omitempty"`
}

// History is the answer of listHistory.
type History struct {
	Revisions []Revision `json:"revisions"` // the newest first
}

// Revision is one stored configuration of a node.
type Revision struct {
	ConfigVersion string    `json:"configVersion"`
	Created       time.Time `json:"created"`
	CreatedBy     string    `json:"createdBy,omitempty"`
	Reason        string    `json:"reason"`
	Repeats       string    `json:"repeats,omitempty"`
	Desired       bool      `json:"desired"`
	Assigned      bool      `json:"assigned"`
	Applied       bool      `json:"applied"`
	Failed        bool      `json:"failed"`
	Changed       []string  `json:"changed,omitempty"`
	ChangeCount   int       `json:"changeCount"`
}

// DiffRequest is the body of diff. From defaults to the applied configuration, if that is stored,
// else to the one offered to agents; To defaults to the owner's.
type DiffRequest struct {
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// Diff is the answer of diff.
type Diff struct {
	From       string   `json:"from"`
	To         string   `json:"to"`
	Disruption string   `json:"disruption"`
	Changes    []Change `json:"changes"`
}

// Change is a setting that differs between two configurations. From and To are its values: a string
// unchanged, anything else as JSON; nil if it is not set.
type Change struct {
	Path       string  `json:"path"`
	From       *string `json:"from,omitempty"`
	To         *string `json:"to,omitempty"`
	Disruption string  `json:"disruption"`
}

// RollbackRequest is the body of rollback.
type RollbackRequest struct {
	ConfigVersion string `json:"configVersion"`
}

// Summary counts the nodes of a cluster.
type Summary struct {
	Nodes              int              `json:"nodes"`
	States             []StateCount     `json:"states"`
	ProvisioningStates []StateCount     `json:"provisioningStates"`
	Versions           []VersionCount   `json:"versions"`
	Conditions         []ConditionCount `json:"conditions"`
	Changes            []RolloutChange  `json:"changes"`
	ArcMachinesLeft    []ArcMachineLeft `json:"arcMachinesLeft,omitempty"`
}

// ArcMachineLeft is the remaining Arc machine of a deleted node.
type ArcMachineLeft struct {
	Node      string    `json:"node"`
	MachineID string    `json:"machineResourceId"`
	DeletedAt time.Time `json:"deletedAt"`
	Problem   string    `json:"problem,omitempty"`
}

// RolloutChange shows the progress of a change on a cluster's nodes (RolloutPolicy).
type RolloutChange struct {
	Change       string     `json:"change"`
	Settings     []string   `json:"settings"` // the settings that differ, as path=value, at most 20
	Since        time.Time  `json:"since"`
	Waiting      int        `json:"waiting"`
	Trying       int        `json:"trying"`
	Good         int        `json:"good"`
	Failed       int        `json:"failed"`
	Unknown      int        `json:"unknown"`
	Held         string     `json:"held,omitempty"`
	AllowedBy    string     `json:"allowedBy,omitempty"`
	AllowedUntil *time.Time `json:"allowedUntil,omitempty"`
}

// AllowVersions is the body of allowVersions.
type AllowVersions struct {
	Change   string `json:"change,omitempty"` // the name of the change; "" is every held change
	Failures int    `json:"failures,omitempty"`
	For      string `json:"for,omitempty"`
}

// AllowedVersions is its answer.
type AllowedVersions struct {
	Changes []RolloutChange `json:"changes"`
}

// StateCount counts the nodes in a state.
type StateCount struct {
	State string `json:"state"`
	Nodes int    `json:"nodes"`
}

// VersionCount counts the nodes that should run a version of a component, and that report it.
type VersionCount struct {
	Component string `json:"component"`
	Version   string `json:"version"`
	Wanted    int    `json:"wanted"`
	Running   int    `json:"running"`
}

// ConditionCount counts the nodes that have a condition with a status and reason.
type ConditionCount struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
	Nodes  int    `json:"nodes"`
}
