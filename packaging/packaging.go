// Package packaging holds the files that go with the programs: systemd units, and manifests for the
// cluster's operator.
package packaging

import "embed"

var (
	// Examples are configurations of the agent, which docs/CONFIGURATION.md shows.
	//go:embed examples
	Examples embed.FS
	// UnattendedUpgrades is what an administrator allows who wants unattended-upgrades to upgrade our
	// packages.
	//go:embed unattended-upgrades
	UnattendedUpgrades string
	// AgentUnit is the systemd unit that runs `aks-flex-node agent`.
	//go:embed systemd/aks-flex-node-agent.service
	AgentUnit string
	// ProviderUnit is the systemd unit that runs `flexnode-rp serve`.
	//go:embed systemd/flexnode-rp.service
	ProviderUnit string
	// ProviderUser has systemd-sysusers make the user of ProviderUnit.
	//go:embed sysusers.d/flexnode-rp.conf
	ProviderUser string
	// RBAC is what the operator of a cluster applies once, so that machines can join with bootstrap
	// tokens.
	//go:embed kubernetes/rbac.yaml
	RBAC string
	// IdentityRBAC is what the operator applies so that the members of an Entra group, in the place
	// of GROUP-OBJECT-ID, may ask for a node's certificate.
	//go:embed kubernetes/rbac-identity.yaml
	IdentityRBAC string
	// ProviderRBAC is what the operator applies so that the resource provider can make bootstrap
	// tokens and decide on what is asked with them.
	//go:embed kubernetes/rbac-provider.yaml
	ProviderRBAC string
	// KubeProxy is what the operator of a cluster whose kube-proxy does not land on flex nodes
	// applies, with the API server's address in the place of API-SERVER and the cluster's version in
	// that of KUBERNETES-VERSION.
	//go:embed kubernetes/kube-proxy.yaml
	KubeProxy string
)
