package node

import _ "embed"

// NPDUnit is the unit of the node-problem-detector.
const NPDUnit = "node-problem-detector.service"

const npdConfDir = "/etc/node-problem-detector"

//go:embed node-problem-detector.service
var npdService string

// kubernetes installs kubelet.
func kubernetes(p *part) {
	p.owe([]string{KubeletUnit}, p.bin(binDir, "kubelet", "kubelet"))
}

// tools installs kubectl, kubeadm and the node-problem-detector. They are for people and for later,
// so they come once the Node is Ready and take no bandwidth before.
func tools(p *part) {
	p.add(p.bin(binDir, "kubectl", "kubectl"), p.bin(binDir, "kubeadm", "kubeadm"))
	p.npd()
}

// npd installs the node-problem-detector with its kernel monitor. It speaks to the API server with
// kubelet's credential.
func (p *part) npd() {
	const rules = "config/kernel-monitor.json"
	owes := []string{NPDUnit}
	p.owe(owes, p.bin(binDir, "node-problem-detector", "bin/node-problem-detector"))
	p.owe(owes, p.bin(npdConfDir, "node-problem-detector", rules))
	p.unit(NPDUnit, 0o644, fill(npdService, map[string]string{
		"Server":     string(thisServer),
		"Kubeconfig": p.kubeconfig(),
		"NodeName":   p.config.Agent.NodeName,
		"Rules":      npdConfDir + "/kernel-monitor.json",
	}))
	p.proxyDropIn(NPDUnit)
}
