package v20260501preview

import "time"

// History is the answer of listHistory.
type History struct {
	Revisions []Revision `json:"revisions"` // the newest first
}

// Revision is one configuration of a node that is kept.
type Revision struct {
	ConfigVersion string    `json:"configVersion"`
	Created       time.Time `json:"created"`
	CreatedBy     string    `json:"createdBy,omitempty"`
	// Reason is put, facts or rollback; Repeats the version that a rollback repeats.
	Reason  string `json:"reason"`
	Repeats string `json:"repeats,omitempty"`
	// Desired is what the owner wants, Assigned what agents are offered, Applied what the node's
	// agent has reported to run, Failed what it has reported to have failed.
	Desired  bool `json:"desired"`
	Assigned bool `json:"assigned"`
	Applied  bool `json:"applied"`
	Failed   bool `json:"failed"`
	// Changed are paths of the configuration that differ from the revision before, at most 20 of
	// them; ChangeCount is how many there are.
	Changed     []string `json:"changed,omitempty"`
	ChangeCount int      `json:"changeCount"`
}

// DiffRequest is the body of diff. Without From it is what the node has applied, if that is kept,
// else what agents are offered; without To what its owner wants.
type DiffRequest struct {
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// Diff is the answer of diff.
type Diff struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Disruption holds the greatest one of the changes: none, restart or drain.
	Disruption string   `json:"disruption"`
	Changes    []Change `json:"changes"`
}

// Change is one setting that differs between two configurations. From and To are its values: a
// string as it is, anything else as JSON; nil where there is none.
type Change struct {
	Path string  `json:"path"`
	From *string `json:"from,omitempty"`
	To   *string `json:"to,omitempty"`
	// Disruption holds the effect on the pods: none, restart (of kubelet or containerd; the pods go
	// on) or drain.
	Disruption string `json:"disruption"`
}

// RollbackRequest is the body of rollback.
type RollbackRequest struct {
	ConfigVersion string `json:"configVersion"`
}
