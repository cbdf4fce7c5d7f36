package node

import (
	"io/fs"

	"github.com/Azure/AKSFlexNode/internal/state"
)

// unit writes the unit file of a service and gives the service the configured proxy.
func (p *part) unit(name string, mode fs.FileMode, content string) {
	p.owe([]string{state.DaemonReload, name}, state.NewFile(unitDir+"/"+name, mode, content))
	p.proxyDropIn(name)
}
