package config

// StateDir has everything of the agent that survives a reboot, RunDir what does not.
const (
	StateDir = "/var/lib/aks-flex-node"
	RunDir   = "/run/aks-flex-node"
)
