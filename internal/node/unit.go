package node

import "github.com/Azure/AKSFlexNode/internal/state"

// unit writes the unit file of a service and gives the service the configured proxy.
func (p *part) unit(name, content string) {
	p.owe([]string{state.DaemonReload, name}, state.NewFile(unitDir+"/"+name, 0o644, content))
	p.proxyDropIn(name)
}
