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
	// FailedVersions are those that nodes have failed to run, the newest first.
	FailedVersions []FailedVersions `json:"failedVersions"`
}

// FailedVersions are component versions that nodes of a cluster have failed to run together.
type FailedVersions struct {
	Versions Versions `json:"versions"`
	// Nodes is how many nodes have failed, at most 3. Held tells that the others are not offered
	// these versions because of that, AllowedBy who has them offered all the same.
	Nodes     int       `json:"nodes"`
	Since     time.Time `json:"since"`
	Held      bool      `json:"held"`
	AllowedBy string    `json:"allowedBy,omitempty"`
}

// AllowVersions is the body of allowVersions. What is left out of Versions is any.
type AllowVersions struct {
	Versions Versions `json:"versions,omitzero"`
}

// AllowedVersions is its answer.
type AllowedVersions struct {
	FailedVersions []FailedVersions `json:"failedVersions"`
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
