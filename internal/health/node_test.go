package health

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/Azure/AKSFlexNode/internal/kube"
)

// noNode is evidence of a Node that cannot be read.
func noNode(err error, log ...string) Evidence {
	return with(func(e *Evidence) {
		e.Node = Answered(kube.Node{}, err)
		e.Kubelet.Value.Log = log
	})
}

// readyIs is evidence of a Node whose Ready condition is so.
func readyIs(status corev1.ConditionStatus, reason, message string) Evidence {
	return withNode(func(n *kube.Node) {
		c := &n.Status.Conditions[0]
		c.Status, c.Reason, c.Message = status, reason, message
	})
}

// restarted is evidence of a kubelet that was started so long ago, after it had last reported.
func restarted(age time.Duration) Evidence {
	return with(func(e *Evidence) {
		e.Kubelet.Value.Since = ago(age)
		e.Node.Value.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(ago(age + time.Minute))
	})
}

// R1: a Node that was deleted is distinguished from an API server that does not answer.
func TestNodeRegistered(t *testing.T) {
	const reason = "NodeMissing"
	check(t, NodeRegistered, []expect{
		blank("NotChecked"),
		{"deleted", noNode(notFound()), False, reason, OwnerMachine, "drift --repair"},
		{"no answer", noNode(unavailable()), Unknown, "NotAnswered", "", "etcd is down"},
		{"a 404 of a load balancer", noNode(statusError(404)), Unknown, "NotAnswered", "", ""},
		{"last words", noNode(notFound(), "hm"), False, reason, OwnerMachine, "registered: hm; "},
		{"the name is taken", noNode(notFound(), `nodes "x" is forbidden: node "y" is not allowed`),
			False, reason, OwnerConfiguration, "another agent.nodeName"},
		{"refused", noNode(notFound(), `"Unable to register node with API server"`), False, reason,
			OwnerCluster, "does not accept the Node"},
		{"not trusted", noNode(notFound(), "x509: signed by unknown authority"), False, reason,
			OwnerConfiguration, "caCertData"},
	})
}

func TestNodeReady(t *testing.T) {
	const noNetwork = "container runtime network not ready: NetworkReady=false " +
		"reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"
	network := func(podCIDR string, configs ...string) Evidence {
		e := readyIs(corev1.ConditionFalse, "KubeletNotReady", noNetwork)
		e.Node.Value.Spec.PodCIDR, e.Machine.CNIConfigs = podCIDR, configs
		return e
	}
	unexamined := network("10.244.1.0/24")
	unexamined.Machine = nil
	const owner = OwnerMachine
	check(t, NodeReady, []expect{
		blank("NotChecked"),
		{"missing", noNode(notFound()), Unknown, "NotAnswered", "", ""},
		{"not reported", withNode(func(n *kube.Node) { n.Status.Conditions = nil }), Unknown,
			"NotReported", "", "has not reported yet"},
		{"what an earlier kubelet said", restarted(time.Minute), Unknown, "NotReported", "", "since"},
		{"kubelet's own words", readyIs("False", "KubeletNotReady", "PLEG is not healthy"), False,
			"KubeletNotReady", owner, "PLEG is not healthy"},
		{"no reason", readyIs("False", "", "x"), False, "KubeletNotReady", owner, "x"},
		{"not heard of", readyIs("Unknown", "NodeStatusUnknown", "Kubelet stopped posting"), False,
			"NodeStatusUnknown", OwnerNetwork, "Kubelet stopped posting"},
		{"no pod subnet", network(""), False, "PodSubnetMissing", OwnerCluster, "cni.podCIDR"},
		{"no network configuration", network("10.244.1.0/24"), False, "PodNetworkMissing", owner,
			"drift --repair"},
		{"the machine was not examined", unexamined, False, "PodNetworkMissing", owner, ""},
		{"a network that does not work", network("10.244.1.0/24", "05-cilium.conflist"), False,
			"PodNetworkBroken", owner, "05-cilium.conflist"},
	})
}

// The last report of a kubelet has whole seconds, and its start has not.
func TestNodeReadyWithinASecond(t *testing.T) {
	check(t, NodeReady, []expect{{"reported in the second of the start", with(func(e *Evidence) {
		e.Kubelet.Value.Since = ago(10*time.Second - 900*time.Millisecond)
		e.Node.Value.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(ago(10 * time.Second))
	}), True, "", "", ""}})
}

// R6: the lease shows that it is this kubelet that the cluster hears.
func TestLeaseRenewed(t *testing.T) {
	renewed := func(since, at time.Duration) Evidence {
		return with(func(e *Evidence) {
			e.Kubelet.Value.Since = ago(since)
			e.Lease.Value = lease(ago(at))
		})
	}
	none := func(since time.Duration, err error) Evidence {
		return with(func(e *Evidence) {
			e.Kubelet.Value.Since, e.Lease = ago(since), Answered(kube.Lease{}, err)
		})
	}
	const owner = OwnerMachine
	check(t, LeaseRenewed, []expect{
		blank("NotChecked"),
		{"by the kubelet before", renewed(3*time.Second, 8*time.Second), Unknown, "NotRenewed", "", ""},
		{"not since the start", renewed(2*time.Minute, 3*time.Minute), False, "Expired", owner,
			"3m0s ago"},
		{"expired", renewed(time.Hour, time.Minute), False, "Expired", owner, "1m0s ago"},
		{"no lease yet", none(time.Second, notFound()), Unknown, "NotRenewed", "", ""},
		{"no lease", none(time.Hour, notFound()), False, "NotRenewed", owner, "never"},
		{"an empty lease", none(time.Hour, nil), False, "NotRenewed", owner, "never"},
		{"no answer", none(time.Hour, unavailable()), Unknown, "NotAnswered", "", "etcd is down"},
	})
}

// R7 and drop-ins: what kubelet reports is compared with what is configured.
func TestRunsAsConfigured(t *testing.T) {
	const reason, owner = "Differs", OwnerMachine
	wanted := func(change func(*Wanted)) Evidence {
		return with(func(e *Evidence) { change(&e.Wanted) })
	}
	check(t, RunsAsConfigured, []expect{
		blank("NotChecked"),
		{"not reported since the start", restarted(time.Minute), Unknown, "NotReported", "", ""},
		{"kubelet", wanted(func(w *Wanted) { w.Kubernetes.Version = "1.34.5" }), False, reason, owner,
			"kubelet is 1.35.1, expected 1.34.5"},
		{"containerd", wanted(func(w *Wanted) { w.Containerd.Version = "2.1.0" }), False, reason, owner,
			"containerd is 2.3.4, expected 2.1.0"},
		{"maxPods", withNode(func(n *kube.Node) {
			n.Status.Capacity[corev1.ResourcePods] = resource.MustParse("50")
		}), False, reason, owner, "maxPods is 50, expected 110"},
		{"the address", wanted(func(w *Wanted) { w.Node.Kubelet.NodeIP = "203.0.113.7" }), False,
			reason, owner,
			"address is 10.0.0.4, expected 203.0.113.7"},
		{"a vendor's kubelet", withNode(func(n *kube.Node) {
			n.Status.NodeInfo.KubeletVersion = "v1.35.1-edge+1"
		}), True, "", "", ""},
		{"nothing is wanted", with(func(e *Evidence) { e.Wanted = Wanted{} }), True, "", "", ""},
	})
}

// R6: the pods of a kubelet that crashes are not synchronised, while the Node is Ready.
// Kubelet evicts pods and accepts no others while the Node is Ready.
func TestNodePressure(t *testing.T) {
	reports := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) Evidence {
		return withNode(func(n *kube.Node) {
			c := corev1.NodeCondition{Type: kind, Status: status}
			n.Status.Conditions = append(n.Status.Conditions, c)
		})
	}
	const reason, owner = "UnderPressure", OwnerMachine
	check(t, NodePressure, []expect{
		blank("NotChecked"),
		{"memory", reports("MemoryPressure", "True"), False, reason, owner, "MemoryPressure"},
		{"disk", reports("DiskPressure", "True"), False, reason, owner, "evictionHard"},
		{"processes", reports("PIDPressure", "True"), False, reason, owner, "PIDPressure"},
		{"enough", reports("DiskPressure", "False"), True, "", "", ""},
		{"another condition", reports("KernelDeadlock", "True"), True, "", "", ""},
		{"an earlier kubelet's report", restarted(time.Minute), Unknown, "NotReported", "", "since"},
	})
}

// pods returns evidence of pods, with a kubelet that was started so long ago.
func pods(since time.Duration, list ...corev1.Pod) Evidence {
	return with(func(e *Evidence) {
		e.Kubelet.Value.Since, e.Pods.Value = ago(since), list
		e.Node.Value.Status.NodeInfo.KubeletVersion = "v1.36.0"
	})
}

func TestPodsSynchronized(t *testing.T) {
	deleted, running := pod("x", time.Hour, false), pod("x", time.Hour, false)
	deleted.DeletionTimestamp = new(metav1.NewTime(now()))
	running.Status.Phase = corev1.PodFailed
	unscheduled := pod("x", time.Hour, false)
	unscheduled.Status.Conditions = nil
	const reason, owner = "PodsIgnored", OwnerMachine
	check(t, PodsSynchronized, []expect{
		blank("NotChecked"),
		{"none", pods(time.Hour), True, "", "", ""},
		{"ignored", pods(time.Hour, pod("x", time.Minute, false)), False, reason, owner, "default/x"},
		{"a static pod", pods(time.Hour, unscheduled), False, reason, owner, "1 pod "},
		{"bound just now", pods(time.Hour, pod("x", time.Second, false)), True, "", "", ""},
		{"kubelet has just started", pods(time.Second, pod("x", time.Hour, false)), Unknown,
			"Starting", "", "1 pod"},
		{"deleted before it began", pods(time.Hour, deleted), True, "", "", ""},
		{"refused", pods(time.Hour, running), True, "", "", ""},
		{"no answer", with(func(e *Evidence) { e.Pods = failed[[]corev1.Pod]() }), Unknown,
			"NotAnswered", "", ""},
	})
}

func TestPodsNetworked(t *testing.T) {
	// sandbox returns a pod that has or lacks its sandbox for so long.
	sandbox := func(
		has corev1.ConditionStatus, since time.Duration, edit func(*corev1.Pod),
	) corev1.Pod {
		p := pod("y", time.Hour, true)
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{ // as for all
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{
					Name: "kube-root-ca.crt"}}},
				{DownwardAPI: &corev1.DownwardAPIProjection{}},
			}}}}}
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodReadyToStartContainers, Status: has,
			LastTransitionTime: metav1.NewTime(ago(since)),
		})
		if edit != nil {
			edit(&p)
		}
		return p
	}
	lacks := sandbox(corev1.ConditionFalse, 3*time.Minute, nil)
	but := func(edit func(*corev1.Pod)) Evidence {
		return pods(time.Hour, sandbox(corev1.ConditionFalse, 3*time.Minute, edit))
	}
	older := pods(time.Hour, lacks)
	older.Node.Value.Status.NodeInfo.KubeletVersion = "v1.35.9"
	check(t, "PodsNetworked", []expect{
		blank("NotChecked"),
		{"no sandbox", pods(time.Hour, lacks, sandbox(corev1.ConditionTrue, 4*time.Minute, nil)), False,
			"PodsWithoutNetwork", OwnerMachine, "1 pod to the pod network for more than 2m0s"},
		{"a sandbox of another since", pods(time.Hour, lacks,
			sandbox(corev1.ConditionTrue, time.Minute, nil)), True, "", "", ""},
		{"another has ended since", pods(time.Hour, lacks, sandbox(corev1.ConditionFalse, time.Minute,
			func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })), True, "", "", ""},
		{"no sandbox yet", pods(time.Hour, sandbox(corev1.ConditionFalse, time.Minute, nil)), True, "",
			"", ""},
		{"no sandbox since kubelet started", pods(time.Minute, lacks), True, "", "", ""},
		{"an older kubelet, which may pull an image", older, True, "", "", ""},
		{"a pod that ends", but(func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(now())) }),
			True, "", "", ""},
		{"on the host's network", but(func(p *corev1.Pod) { p.Spec.HostNetwork = true }), True, "", "",
			""},
		{"a volume that may be missing", but(func(p *corev1.Pod) {
			p.Spec.Volumes[0] = corev1.Volume{VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{}}}
		}), True, "", "", ""},
		{"a Secret that may be missing", but(func(p *corev1.Pod) {
			from := &p.Spec.Volumes[0].Projected.Sources
			*from = append(*from, corev1.VolumeProjection{Secret: &corev1.SecretProjection{}})
		}), True, "", "", ""},
		{"a ConfigMap that may be missing", but(func(p *corev1.Pod) {
			p.Spec.Volumes[0].Projected.Sources[1].ConfigMap.Name = "settings"
		}), True, "", "", ""},
		{"a runtime of its own", but(func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("gvisor") }),
			True, "", "", ""},
	})
}

func TestLabelsApplied(t *testing.T) {
	label := func(key, value string) Evidence {
		return with(func(e *Evidence) { e.Wanted.Node.Labels[key] = value })
	}
	const reason, owner = "LabelsDiffer", OwnerMachine
	check(t, LabelsApplied, []expect{
		blank("NotChecked"),
		{"another value", label("site", "bergen"), False, reason, owner, "site=bergen"},
		{"missing", label("rack", ""), False, reason, owner, "rack="},
	})
}

// m8: a node may not change its taints, and no message said so.
func TestTaintsApplied(t *testing.T) {
	taint := func(text string) Evidence {
		return with(func(e *Evidence) { e.Wanted.Node.Taints = []string{text} })
	}
	const reason, owner = "TaintsDiffer", OwnerCluster
	check(t, "TaintsApplied", []expect{
		blank("NotChecked"),
		{"another value", taint("dedicated=core:NoSchedule"), False, reason, owner,
			"`kubectl taint node edge-1 dedicated=core:NoSchedule --overwrite`"},
		{"another effect", taint("dedicated=edge:NoExecute"), False, reason, owner, "NoExecute"},
		{"none wanted", with(func(e *Evidence) { e.Wanted.Node.Taints = nil }), True, "", "", ""},
	})
}
