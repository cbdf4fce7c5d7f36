package health

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/Azure/AKSFlexNode/internal/kube"
)

// nodeOwned: two machines under one name overwrite each other's Node, and the cluster sends the
// pods of the one to the other. What a kubelet has reported of its machine tells whose a Node is.
func nodeOwned(e Evidence) Condition {
	switch {
	case kube.NodeMissing(e.Node.Err):
		return holds()
	case !e.Node.OK():
		return e.Node.missing()
	case e.Machine == nil:
		return notAsked()
	}
	info := e.Node.Value.Status.NodeInfo
	if !anothers(info, *e.Machine, kube.Ready(e.Node.Value).Status == corev1.ConditionTrue) {
		return holds()
	}
	name := e.Wanted.Node
	told := func(id string) string { return cmp.Or(id, "unknown") }
	return fails(OwnerConfiguration, "AnotherMachine", fmt.Sprintf("Node %s is that of another "+
		"machine (its machineID is %s and its systemUUID %s, those of this machine are %s and %s): "+
		"give this machine a name of its own with agent.nodeName; or, if that machine is gone, have "+
		"the cluster's operator run `kubectl delete node %s`", name, told(info.MachineID),
		told(info.SystemUUID), told(e.Machine.MachineID), told(e.Machine.SystemUUID), name))
}

// anothers tells whether what a Node says is of another machine: both identifiers differ, or one
// does and that machine is still heard of. A system that was installed anew has another machineID,
// and a disk that has moved another systemUUID: their former Nodes are no longer Ready. What one
// side does not know says nothing.
func anothers(info corev1.NodeSystemInfo, m Machine, heard bool) bool {
	same, differ := false, false
	for _, id := range [][2]string{{info.MachineID, m.MachineID}, {info.SystemUUID, m.SystemUUID}} {
		known := id[0] != "" && id[1] != ""
		same = same || known && strings.EqualFold(id[0], id[1])
		differ = differ || known && !strings.EqualFold(id[0], id[1])
	}
	return differ && (heard || !same)
}
