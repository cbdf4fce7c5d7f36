package config

import (
	"fmt"
	"maps"
)

// Reserved returns the resources that kubelet reserves for Kubernetes daemons on a machine with the
// given thousandths of a processor and bytes of memory: the configured ones, over those of AKS from
// 1.29 on (Microsoft Learn, "Node resource reservations in AKS"). AKS documents processors for 1,
// 2, 4, 8, ... 64; memory is the lesser of an amount for each pod and a quarter, here of whole MiB.
func (n Node) Reserved(processors int, memory int64) map[string]string {
	if processors == 0 || memory == 0 { // not known
		return n.Kubelet.KubeReserved
	}
	cores := max(processors/1000, 1)
	cpu := 60 + 40*min(cores-1, 1) + 20*min(max(cores-2, 0), 2) + 10*max(cores-4, 0)
	const unit = 16 // tolerates a few KiB more or less with another kernel
	quarter := memory / 4 >> 20 / unit * unit
	reserved := map[string]string{
		"cpu":    fmt.Sprintf("%dm", cpu),
		"memory": fmt.Sprintf("%dMi", min(int64(20*n.MaxPods+50), quarter)),
	}
	maps.Copy(reserved, n.Kubelet.KubeReserved)
	return reserved
}
