package node

import (
	_ "embed"
	"fmt"

	"github.com/Azure/AKSFlexNode/internal/state"
)

const (
	npdUnit    = "node-problem-detector.service"
	npdConfDir = "/etc/node-problem-detector"
)

//go:embed node-problem-detector.service
var npdService string

// kubernetes installs kubelet first. kubectl, kubeadm and the node-problem-detector are for people and for later, so they come
// once the node is registered and take no bandwidth before.
func kubernetes(p *part) {
	p.owe([]string{kubeletUnit}, p.bin(binDir, "kubelet", "kubelet"))
	if !p.facts.Joined {
		return
	}
	p.add(p.bin(binDir, "kubectl", "kubectl"), p.bin(binDir, "kubeadm", "kubeadm"))
	p.npd()
}

// npd installs the node-problem-detector with its kernel monitor. It speaks to the API server with kubelet's credential.
func (p *part) npd() {
	const rules = "config/kernel-monitor.json"
	owes := []string{npdUnit}
	p.owe(owes, p.bin(binDir, "node-problem-detector", "bin/node-problem-detector"))
	p.owe(owes, p.bin(npdConfDir, "node-problem-detector", rules))
	service := execute(npdService, map[string]string{
		"Server":     p.facts.Server,
		"Kubeconfig": p.kubeconfig(),
		"NodeName":   p.config.Agent.NodeName,
		"Rules":      npdConfDir + "/kernel-monitor.json",
	})
	p.owe([]string{state.DaemonReload, npdUnit}, state.NewFile(unitDir+"/"+npdUnit, 0o644, service))
}

// minor returns the minor number of a Kubernetes version "1.34.4"; config has validated its form.
func minor(version string) int {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		panic("internal error: version " + version + " was not validated")
	}
	return minor
}
