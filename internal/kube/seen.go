package kube

import "time"

// ReadySince reports whether the Node is Ready as a kubelet says it that started at the given time.
// What the kubelet before it has said remains in the Node for a while, and must not count.
// Heartbeats have whole seconds.
func ReadySince(started time.Time) func(Node) bool {
	return func(n Node) bool {
		ready := Ready(n)
		return ready.Status == "True" &&
			!ready.LastHeartbeatTime.Time.Before(started.Truncate(time.Second))
	}
}

// PodCIDRs returns the pod subnets of a Node; nil while it has none.
func PodCIDRs(n Node) []string {
	if len(n.Spec.PodCIDRs) > 0 {
		return n.Spec.PodCIDRs
	}
	if n.Spec.PodCIDR != "" {
		return []string{n.Spec.PodCIDR}
	}
	return nil
}
