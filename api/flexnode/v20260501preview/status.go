package v20260501preview

import "time"

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

// Condition is one thing that is true, false or unknown of a node, as in Kubernetes.
type Condition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"` // True, False or Unknown
	LastTransitionTime time.Time `json:"lastTransitionTime,omitzero"`
	Reason             string    `json:"reason,omitempty"`
	Message            string    `json:"message,omitempty"`
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

// Components are the versions that run.
type Components struct {
	Kubelet    string `json:"kubelet,omitempty"`
	Containerd string `json:"containerd,omitempty"`
	Runc       string `json:"runc,omitempty"`
	CNI        string `json:"cni,omitempty"`
	NPD        string `json:"npd,omitempty"`
	Agent      string `json:"agent,omitempty"`
	Kernel     string `json:"kernel,omitempty"`
	OS         string `json:"os,omitempty"`
}

// Applied is which configurations an agent knows, by their configVersions.
type Applied struct {
	// Observed is the last one that it was offered, Applied the one that the node was proved
	// healthy with.
	Observed string        `json:"observed,omitempty"`
	Applied  string        `json:"applied,omitempty"`
	Failed   *FailedConfig `json:"failed,omitempty"`
}

// RolledBack is the reason of a FailedConfig that was healthy, and that a person on the machine has
// left for the one before. It says nothing of its versions.
const RolledBack = "RolledBack"

// FailedConfig is a configuration with which a node was not healthy: the one before was restored.
type FailedConfig struct {
	Version string     `json:"version"`
	Reason  string     `json:"reason,omitempty"` // one word
	Message string     `json:"message,omitempty"`
	Log     string     `json:"log,omitempty"` // the last lines of what has failed
	At      *time.Time `json:"at,omitempty"`
}

// Drift is in what a machine is not as it is configured.
type Drift struct {
	Policy   string      `json:"policy,omitempty"` // report, repair or off
	Count    int         `json:"count"`
	LastSeen *time.Time  `json:"lastSeen,omitempty"`
	Items    []DriftItem `json:"items,omitempty"` // the first of them
}

// DriftItem is one thing on a machine that is not as it is configured.
type DriftItem struct {
	Name    string `json:"name"` // such as a path
	Message string `json:"message,omitempty"`
}

// Report is the body of reportStatus. AppliedConfigVersion is the same as Config.Applied, and
// AgentVersion as Components.Agent: one of the two is enough.
type Report struct {
	AppliedConfigVersion string      `json:"appliedConfigVersion,omitempty"`
	LastConfigApplied    *time.Time  `json:"lastConfigApplied,omitempty"`
	AgentVersion         string      `json:"agentVersion,omitempty"`
	Components           *Components `json:"components,omitempty"`
	Config               *Applied    `json:"config,omitempty"`
	Drift                *Drift      `json:"drift,omitempty"`
	Conditions           []Condition `json:"conditions,omitempty"`
}

// BeginChange is the body of beginChange: the agent asks before it restarts or drains.
type BeginChange struct {
	// ConfigVersion is that of the configuration that it is about to apply.
	ConfigVersion string `json:"configVersion"`
}

// ChangeBegun is the answer to BeginChange.
type ChangeBegun struct {
	// GrantedSeconds is for how long, from when it has asked, no other node takes its place; 0 when
	// it may not begin.
	GrantedSeconds int `json:"grantedSeconds,omitempty"`
	// Hold is why it may not, in one word, and Reason the same for people. RetryAfter is after how
	// many seconds it asks again; a poll that waits ends earlier when it may begin.
	Hold       string `json:"hold,omitempty"`
	Reason     string `json:"reason,omitempty"`
	RetryAfter int    `json:"retryAfter,omitempty"`
}
