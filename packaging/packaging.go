// Package packaging holds the files that go with the programs: systemd units, and configurations
// for who installs them.
package packaging

import (
	"embed"
	"fmt"
	"os/exec"
	"strings"
)

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
)

// Project is the main module, whose programs are packaged.
const Project = "github.com/Azure/AKSFlexNode"

// Source returns the directory of a module.
func Source(module string) (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the sources of %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}
