package v20260501preview

import "time"

// Summary counts the nodes of a cluster.
type Summary struct {
	Nodes int `json:"nodes"`
	// States are all states; a node is in several. ProvisioningStates are all of them too.
	States             []StateCount `json:"states"`
	ProvisioningStates []StateCount `json:"provisioningStates"`
	// Versions and Conditions are at most the 200 most frequent ones.
	Versions   []VersionCount   `json:"versions"`
	Conditions []ConditionCount `json:"conditions"`
	// Changes are those that nodes wait for, try or have failed, at most 16: first those that have
	// failed and are waited for.
	Changes []RolloutChange `json:"changes"`
	// ArcMachinesLeft are at most 200 Arc machines of deleted nodes that are still in Azure, as far
	// as their machines have said.
	ArcMachinesLeft []ArcMachineLeft `json:"arcMachinesLeft,omitempty"`
}

// ArcMachineLeft is an Arc machine of a node that was deleted.
type ArcMachineLeft struct {
	Node      string    `json:"node"`
	MachineID string    `json:"machineResourceId"`
	DeletedAt time.Time `json:"deletedAt"`
	// Problem is why it could not be removed; "" while its machine has not said.
	Problem string `json:"problem,omitempty"`
}

// RolloutChange shows the progress of a change of a cluster's nodes (RolloutPolicy).
type RolloutChange struct {
	// Change names it: the same settings with the same values have the same name.
	Change string `json:"change"`
	// Settings lists the settings that differ, as path=value, at most 20.
	Settings []string  `json:"settings"`
	Since    time.Time `json:"since"`
	// Waiting, Trying, Good, Failed and Unknown count nodes. A node is Unknown that was neither Ready
	// nor has failed by the deadline.
	Waiting int `json:"waiting"`
	Trying  int `json:"trying"`
	Good    int `json:"good"`
	Failed  int `json:"failed"`
	Unknown int `json:"unknown"`
	// Held is why no node gets it: Paused, CanaryFailed, TooManyFailed or TooManyUnknown.
	Held string `json:"held,omitempty"`
	// AllowedBy names the caller who has allowed more failures (allowVersions), until AllowedUntil.
	AllowedBy    string     `json:"allowedBy,omitempty"`
	AllowedUntil *time.Time `json:"allowedUntil,omitempty"`
}

// AllowVersions is the body of allowVersions.
type AllowVersions struct {
	// Change is the name of the change; "" is every one that is held.
	Change string `json:"change,omitempty"`
	// Failures is the number of nodes that may still fail it; default 1.
	Failures int `json:"failures,omitempty"`
	// For is the time for which that is allowed, as a duration of ISO 8601; default PT24H.
	For string `json:"for,omitempty"`
}

// AllowedVersions is its answer.
type AllowedVersions struct {
	Changes []RolloutChange `json:"changes"`
}

// StateCount is how many nodes are in a state.
type StateCount struct {
	State string `json:"state"`
	Nodes int    `json:"nodes"`
}

// VersionCount is how many nodes are to run a version of a component, and how many run it as their
// agents have reported.
type VersionCount struct {
	Component string `json:"component"`
	Version   string `json:"version"`
	Wanted    int    `json:"wanted"`
	Running   int    `json:"running"`
}

// ConditionCount is how many nodes have a condition with a status and reason.
type ConditionCount struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
	Nodes  int    `json:"nodes"`
}
