package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/kube"
	"github.com/Azure/AKSFlexNode/internal/release"
)

// nodeRegistered checks the Node object. Only the API server's own 404 means that it is missing.
func nodeRegistered(e Evidence) Condition {
	switch {
	case e.Node.OK():
		return holds()
	case !e.Node.Asked || !kube.NodeMissing(e.Node.Err):
		return e.Node.missing()
	}
	var log []string
	if e.Kubelet.OK() {
		log = e.Kubelet.Value.Log
	}
	if c, ok := diagnose(log, true); ok {
		c.Reason = "NodeMissing"
		c.Message = "Node " + e.Wanted.Agent.NodeName + " is not registered: " + c.Message
		return c
	}
	return fails(OwnerMachine, "NodeMissing", "Node "+e.Wanted.Agent.NodeName+" is not registered"+
		lastWords(log)+"; kubelet registers it when it starts", "if it was deleted, "+
		"`aks-flex-node drift --repair` registers it again")
}

// outdated reports whether the Node's status is from an earlier kubelet process, in whole seconds.
func outdated(e Evidence) bool {
	heartbeat := kube.Ready(e.Node.Value).LastHeartbeatTime.Time
	return e.Kubelet.OK() && e.Kubelet.Value.Active &&
		heartbeat.Before(e.Kubelet.Value.Since.Truncate(time.Second))
}

func notReported() Condition {
	return unknown("NotReported", "kubelet has been started but has not updated the Node since")
}

func nodeReady(e Evidence) Condition {
	ready := kube.Ready(e.Node.Value)
	lost := ready.Status == corev1.ConditionUnknown // written by the cluster, not by kubelet
	switch {
	case ready.Status == "":
		return unknown("NotReported", ready.Message)
	case outdated(e) && !lost:
		return notReported()
	case ready.Status == corev1.ConditionTrue:
		return holds()
	case lost:
		return fails(OwnerNetwork, "NodeStatusUnknown", "the cluster receives no status from kubelet: "+
			ready.Message, "check the network, and `journalctl -u kubelet`")
	case strings.Contains(ready.Message, "NetworkPluginNotReady"),
		strings.Contains(ready.Message, "cni plugin not initialized"):
		return networkNotReady(e)
	}
	return fails(OwnerMachine, cmp.Or(ready.Reason, "KubeletNotReady"),
		"kubelet says: "+ready.Message, "read `journalctl -u kubelet`")
}

// nodePressure fails while kubelet evicts pods, which does not affect Ready.
func nodePressure(e Evidence) Condition {
	if outdated(e) {
		return notReported()
	}
	return lacking(kube.Pressure(e.Node.Value), "UnderPressure", "kubelet reports %s: it evicts pods "+
		"and accepts no others", "free memory, disk or process IDs, or lower "+
		"node.kubelet.evictionHard and kubeReserved")
}

func networkNotReady(e Evidence) Condition {
	configs := cmp.Or(e.Machine, &Machine{}).CNIConfigs
	switch {
	case len(configs) > 0:
		return fails(OwnerMachine, "PodNetworkBroken", "the pod network is configured ("+
			strings.Join(configs, ", ")+") but does not work", "read `journalctl -u containerd`")
	case e.Node.Value.Spec.PodCIDR == "":
		return fails(OwnerCluster, "PodSubnetMissing", "the cluster has not allocated a pod subnet "+
			"to this Node; set cni.podCIDR to a subnet that no other node has, or have the cluster "+
			"allocate one (kube-controller-manager --allocate-node-cidrs), or install a network "+
			"such as Cilium")
	}
	return fails(OwnerMachine, "PodNetworkMissing", "no pod network configuration found in "+
		"/etc/cni/net.d", "run `aks-flex-node drift --repair`")
}

// leaseRenewed checks the lease, which proves that the cluster hears from the running kubelet.
func leaseRenewed(e Evidence) Condition {
	const advice cure = "read `journalctl -u kubelet`, and check the network"
	if !e.Lease.OK() && !kube.NodeMissing(e.Lease.Err) { // a missing one was never renewed
		return e.Lease.missing()
	}
	started, spec := e.Kubelet.Value.Since, e.Lease.Value.Spec
	renewed := cmp.Or(spec.RenewTime, &metav1.MicroTime{}).Time
	duration := time.Duration(*cmp.Or(spec.LeaseDurationSeconds, new(int32(40)))) * time.Second
	switch {
	case renewed.Before(started) && e.Now.Sub(started) < duration:
		return unknown("NotRenewed", "kubelet has just been started and has not renewed the Node's "+
			"lease yet")
	case renewed.IsZero():
		return fails(OwnerMachine, "NotRenewed", "kubelet has never renewed the Node's lease", advice)
	case renewed.Before(started), e.Now.Sub(renewed) > duration:
		return fails(OwnerMachine, "Expired", fmt.Sprintf("kubelet has last renewed the Node's lease "+
			"%s ago", e.Now.Sub(renewed).Round(time.Second)), advice)
	}
	return holds()
}

func runsAsConfigured(e Evidence) Condition {
	if outdated(e) || kube.Ready(e.Node.Value).Status == "" {
		return notReported()
	}
	w, n := e.Wanted, e.Node.Value
	var differ []string
	add := func(what, wanted, is string) {
		if wanted != "" && wanted != is {
			differ = append(differ, fmt.Sprintf("%s is %s, expected %s", what, is, wanted))
		}
	}
	info := n.Status.NodeInfo
	runtime, _ := strings.CutPrefix(info.ContainerRuntimeVersion, "containerd://")
	add("kubelet", plain(w.Kubernetes.Version), plain(info.KubeletVersion))
	add("containerd", plain(w.Containerd.Version), plain(runtime))
	if w.Node.MaxPods != 0 {
		add("maxPods", fmt.Sprint(w.Node.MaxPods), n.Status.Capacity.Pods().String())
	}
	var addresses []string
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			addresses = append(addresses, a.Address)
		}
	}
	for ip := range strings.SplitSeq(w.Node.Kubelet.NodeIP, ",") {
		if ip = strings.TrimSpace(ip); ip != "" && !present(ip, addresses) {
			add("the Node's address", ip, strings.Join(addresses, " "))
		}
	}
	return when(len(differ) > 0, OwnerMachine, "Differs", "the node does not run as it is "+
		"configured: "+strings.Join(differ, "; "), "run `aks-flex-node drift --repair`, and check the "+
		"drop-ins below kubelet.conf.d")
}

// plain returns x.y.z of a version, without "v" and a vendor's suffix.
func plain(version string) string {
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "v"), "-")
	version, _, _ = strings.Cut(version, "+")
	return version
}

func labelsApplied(e Evidence) Condition {
	var differ []string
	for _, key := range slices.Sorted(maps.Keys(e.Wanted.Node.Labels)) {
		if is, ok := e.Node.Value.Labels[key]; !ok || is != e.Wanted.Node.Labels[key] {
			differ = append(differ, key+"="+e.Wanted.Node.Labels[key])
		}
	}
	return lacking(differ, "LabelsDiffer", "the Node lacks labels of the configuration: %s; run "+
		"`aks-flex-node drift --repair`")
}

// taintsApplied checks the taints, which a node may only set when it registers.
func taintsApplied(e Evidence) Condition {
	lacking := slices.DeleteFunc(slices.Clone(e.Wanted.Node.Taints), func(text string) bool {
		wanted := kube.TaintOf(text)
		return slices.ContainsFunc(e.Node.Value.Spec.Taints, func(is corev1.Taint) bool {
			return is.MatchTaint(&wanted) && is.Value == wanted.Value
		})
	})
	if len(lacking) == 0 {
		return holds()
	}
	return fails(OwnerCluster, "TaintsDiffer", "the Node lacks taints of the configuration, and a "+
		"node may not change its own taints").run("the cluster's operator can run `kubectl taint node "+
		"%s --overwrite`", append([]string{e.Wanted.Agent.NodeName}, lacking...)...)
}

// nodeOwned fails if another machine has the name: both write the Node and take each other's pods.
func nodeOwned(e Evidence) Condition {
	switch {
	case kube.NodeMissing(e.Node.Err):
		return holds()
	case !e.Node.OK():
		return e.Node.missing()
	case e.Machine == nil:
		return notAsked()
	case !Anothers(e.Node.Value, e.Machine.Facts):
		return holds()
	}
	info, name := e.Node.Value.Status.NodeInfo, e.Wanted.Agent.NodeName
	told := func(id string) string { return cmp.Or(id, "unknown") }
	return fails(OwnerConfiguration, "AnotherMachine", fmt.Sprintf("Node %s belongs to another "+
		"machine (its machineID is %s and its systemUUID %s, those of this machine are %s and %s): "+
		"if one is a copy of the other, shut the copy down; otherwise set a different name with "+
		"agent.nodeName", name, told(info.MachineID),
		told(info.SystemUUID), told(e.Machine.MachineID), told(e.Machine.SystemUUID))).
		run("or, if that machine no longer exists, ask the cluster's operator to run `kubectl delete "+
			"node %s`", name)
}

// Anothers reports whether a Node describes another machine: both identifiers differ, or one does
// and that machine is still alive. A reinstalled system has another machineID, a moved disk another
// systemUUID. Identifiers that one side lacks are ignored.
func Anothers(n kube.Node, m host.Facts) bool {
	same, differ, info := false, false, n.Status.NodeInfo
	for _, id := range [][2]string{{info.MachineID, m.MachineID}, {info.SystemUUID, m.SystemUUID}} {
		known := id[0] != "" && id[1] != ""
		same = same || known && strings.EqualFold(id[0], id[1])
		differ = differ || known && !strings.EqualFold(id[0], id[1])
	}
	return differ && (!same || kube.Ready(n).Status == corev1.ConditionTrue)
}

// The limits of the time until kubelet starts a pod, and until it has connected it to the network.
const podStart, sandboxStart = 30 * time.Second, 2 * time.Minute

func podsSynchronized(e Evidence) Condition {
	started := e.Kubelet.Value.Since // zero if unknown
	var ignored []string
	waiting := 0
	for _, pod := range e.Pods.Value {
		begun := pod.Status.StartTime != nil || pod.DeletionTimestamp != nil ||
			pod.Status.Phase != corev1.PodPending && pod.Status.Phase != ""
		if begun {
			continue
		}
		if min(e.Now.Sub(bound(pod)), e.Now.Sub(started)) > podStart {
			ignored = append(ignored, pod.Namespace+"/"+pod.Name)
		} else {
			waiting++
		}
	}
	switch {
	case len(ignored) > 0:
		return fails(OwnerMachine, "PodsIgnored", fmt.Sprintf("kubelet has not started %s for more "+
			"than %s: %s", count(len(ignored), "pod"), podStart,
			Clip(strings.Join(ignored, ", "), longestLine)), "read `journalctl -u kubelet`")
	case waiting > 0 && e.Now.Sub(started) <= podStart:
		return unknown("Starting", fmt.Sprintf("kubelet has just been started, and has not started %s "+
			"yet", count(waiting, "pod")))
	}
	return holds()
}

// podsNetworked fails for pods whose sandbox kubelet fails to make, if it has made no other since,
// but not for those that may wait for something else, as with a kubelet before 1.36 for an image.
func podsNetworked(e Evidence) Condition {
	kubelet, _ := release.ParseServer(e.Node.Value.Status.NodeInfo.KubeletVersion)
	var made time.Time // the last sandbox
	since := make(map[string]time.Time)
	for _, pod := range e.Pods.Value {
		has := podCondition(pod, corev1.PodReadyToStartContainers)
		at, phase := has.LastTransitionTime.Time, pod.Status.Phase
		waits := min(e.Now.Sub(at), e.Now.Sub(e.Kubelet.Value.Since))
		switch {
		case has.Status == "" || pod.Spec.HostNetwork || kubelet.Minor < 36:
		case has.Status == corev1.ConditionTrue || phase == corev1.PodSucceeded,
			phase == corev1.PodFailed:
			if at.After(made) {
				made = at
			}
		case waits > sandboxStart && pod.DeletionTimestamp == nil && needsOnlyNetwork(pod):
			since[pod.Namespace+"/"+pod.Name] = at
		}
	}
	maps.DeleteFunc(since, func(_ string, at time.Time) bool { return at.Before(made) })
	cutOff := slices.Sorted(maps.Keys(since))
	return when(len(cutOff) > 0, OwnerMachine, "PodsWithoutNetwork", fmt.Sprintf("kubelet has not "+
		"connected %s to the pod network for more than %s, and no other since: %s",
		count(len(cutOff), "pod"), sandboxStart, Clip(strings.Join(cutOff, ", "), longestLine)),
		"read the events in `kubectl describe pod`, and the first file in /etc/cni/net.d")
}

// needsOnlyNetwork reports whether a pod's sandbox needs nothing that only this pod can lack.
func needsOnlyNetwork(pod corev1.Pod) bool {
	return pod.Spec.RuntimeClassName == nil && len(pod.Spec.ResourceClaims) == 0 &&
		!slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.EmptyDir == nil && v.DownwardAPI == nil && (v.Projected == nil ||
				slices.ContainsFunc(v.Projected.Sources, func(from corev1.VolumeProjection) bool {
					return from.ServiceAccountToken == nil && from.DownwardAPI == nil &&
						cmp.Or(from.ConfigMap, &corev1.ConfigMapProjection{}).Name != "kube-root-ca.crt"
				}))
		})
}

func bound(pod corev1.Pod) time.Time {
	if c := podCondition(pod, corev1.PodScheduled); c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

func podCondition(pod corev1.Pod, kind corev1.PodConditionType) (found corev1.PodCondition) {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			found = c
		}
	}
	return found
}

// podSubnetsAgree fails if the Node got other subnets: another node may get the old ones.
func podSubnetsAgree(e Evidence) Condition {
	if e.Wanted.CNI.PodCIDR != "" || len(e.Machine.PodCIDRs) == 0 {
		return holds()
	}
	is := e.Node.Value.Spec.PodCIDRs
	uses := strings.Join(e.Machine.PodCIDRs, ", ")
	switch {
	case len(is) == 0:
		return unknown("NotAllocated",
			"the Node has no pod subnet, and pods here have addresses of "+uses)
	case slices.Equal(is, e.Machine.PodCIDRs):
		return holds()
	}
	return fails(OwnerMachine, "SubnetsDiffer", "the Node has the pod subnets "+strings.Join(is, ", ")+
		", and pods here have addresses of "+uses+", which the cluster may give to another node", "run "+
		"`aks-flex-node bootstrap`, which restarts the pods that have addresses of those")
}
