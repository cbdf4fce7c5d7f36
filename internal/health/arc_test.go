package health

import (
	"testing"

	"github.com/Azure/AKSFlexNode/internal/config"
)

func TestArcConnected(t *testing.T) {
	const id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.HybridCompute/machines/m"
	is := func(a Arc) Evidence {
		a.Recorded = id
		return with(func(e *Evidence) { e.Wanted.Azure.Arc, e.Arc = &config.Arc{}, Answered(a, nil) })
	}
	connected := Arc{Machine: id, Agent: "Connected"}
	check(t, ArcConnected, []expect{
		{"no Arc machine", good(), True, "", "", ""},
		{"connected", is(connected), True, "", "", ""},
		{"not asked", with(func(e *Evidence) { e.Wanted.Azure.Arc = &config.Arc{} }), Unknown,
			"NotChecked", "", ""},
		{"no agent", with(func(e *Evidence) {
			e.Wanted.Azure.Arc, e.Arc = &config.Arc{}, failed[Arc]()
		}), False,
			"AgentSilent", OwnerMachine, "systemctl status himdsd"},
		{"disconnected by hand", is(Arc{Agent: "Disconnected", Lost: true}), False, "NotRegistered",
			OwnerAzure, "aks-flex-node bootstrap"},
		{"deleted in Azure", is(Arc{Machine: id, Agent: "Disconnected", Refused: true, Lost: true}),
			False, "NotAccepted", OwnerAzure, id},
		{"expired", is(Arc{Machine: id, Agent: "Expired", Refused: true, Lost: true}), False,
			"NotAccepted", OwnerAzure, "identity has expired"},
		{"another machine", is(Arc{Machine: "/other", Agent: "Connected", Lost: true}), False,
			"AnotherMachine", OwnerAzure, "/other"},
		{"without Azure", is(Arc{Machine: id, Agent: "Disconnected"}), False, "NotConnected",
			OwnerNetwork, "azcmagent check"},
		{"roles were taken", with(func(e *Evidence) {
			e.Wanted.Azure.Arc, e.Wanted.ArcRole = &config.Arc{}, "the role X"
			e.Arc = Answered(connected, nil)
			e.Authorised = Answered(false, nil)
		}), False, "RoleMissing", OwnerAzure, "needs the role X"},
	})
}
