package node

import (
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
)

// ArcPackage is the package of the Arc agent.
const ArcPackage = "azcmagent"

// arcTrees are the directories that the Arc agent fills and that its package leaves behind (Azure
// Connected Machine agent, "Agent resources").
var arcTrees = [...]string{
	"/opt/azcmagent", "/opt/GC_Ext", "/opt/GC_Service", "/etc/opt/azcmagent", "/var/opt/azcmagent",
	"/var/lib/GuestConfig", "/var/log/azcmagent", "/var/log/himds", "/var/log/arcproxy",
}

// arcAgent renders the Arc agent of an Arc machine, unless others have installed it.
func arcAgent(p *part) {
	if p.config.Azure.AuthMode() != config.AuthArc {
		return
	}
	p.only = OwnArc
	for _, dir := range arcTrees {
		p.add(state.Residue{Kind: state.Trees, Match: dir})
	}
	p.add(state.Package{Name: ArcPackage, State: state.PackageInstalled})
}
