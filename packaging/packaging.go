// Package packaging holds the files that go with the programs: systemd units, and manifests for the cluster's operator.
package packaging

import _ "embed"

var (
	// AgentUnit is the systemd unit that runs `aks-flex-node agent`.
	//go:embed systemd/aks-flex-node-agent.service
	AgentUnit string
	// RBAC is what the operator of a cluster applies once, so that machines can join with bootstrap tokens.
	//go:embed kubernetes/rbac.yaml
	RBAC string
)
