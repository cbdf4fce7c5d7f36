package v20260501preview

// Summary counts the nodes of a cluster.
type Summary struct {
	Nodes int `json:"nodes"`
	// States are all states; a node is in several. ProvisioningStates are all of them too.
	States             []StateCount `json:"states"`
	ProvisioningStates []StateCount `json:"provisioningStates"`
	// Versions and Conditions are at most the 200 most frequent ones.
	Versions   []VersionCount   `json:"versions"`
	Conditions []ConditionCount `json:"conditions"`
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
