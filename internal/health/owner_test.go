package health

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/Azure/AKSFlexNode/internal/kube"
)

func TestNodeOwned(t *testing.T) {
	const another = "AnotherMachine"
	from := func(machineID, systemUUID string, ready corev1.ConditionStatus) Evidence {
		return withNode(func(n *kube.Node) {
			n.Status.NodeInfo.MachineID, n.Status.NodeInfo.SystemUUID = machineID, systemUUID
			n.Status.Conditions[0].Status = ready
		})
	}
	const heard, silent = corev1.ConditionTrue, corev1.ConditionUnknown
	nameless := from("ffff", "ffff", heard)
	nameless.Machine = new(*nameless.Machine)
	nameless.Machine.MachineID, nameless.Machine.SystemUUID = "", ""
	check(t, "NodeOwned", []expect{
		blank("NotChecked"),
		{"another machine", from("ffff", "ffff", heard), False, another, OwnerConfiguration,
			"machineID is ffff and its systemUUID ffff, those of this machine are 3d12 and 4c4c-0031"},
		{"another machine that is off", from("ffff", "ffff", silent), False, another,
			OwnerConfiguration, "kubectl delete node edge-1"},
		{"a copied disk", from("3d12", "ffff", heard), False, another, OwnerConfiguration,
			"if one is a copy of the other, shut the copy down"},
		{"a disk in another machine", from("3d12", "ffff", silent), True, "", "", ""},
		{"one firmware for all", from("ffff", "4c4c-0031", heard), False, another,
			OwnerConfiguration, ""},
		{"installed again", from("ffff", "4c4c-0031", silent), True, "", "", ""},
		{"without firmware", from("ffff", "", silent), False, another, OwnerConfiguration,
			"its systemUUID unknown"},
		{"never reported", from("", "", ""), True, "", "", ""},
		{"a machine without a name", nameless, True, "", "", ""},
		{"no such Node", noNode(notFound()), True, "", "", ""},
		{"may not ask", noNode(statusError(403)), Unknown, "NotAnswered", "", ""},
	})
}
