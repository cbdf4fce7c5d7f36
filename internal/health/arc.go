package health

import "fmt"

// Arc is how the machine stands with Azure Arc, as far as its Arc agent knows.
type Arc struct {
	// Machine is the ARM id under which it is registered, "" when it is not; Recorded is the one
	// that the node was enrolled as.
	Machine, Recorded string
	// Agent is the agent's own word for its connection.
	Agent string
	// Refused tells that Azure no longer gives the machine's identity a token.
	Refused bool
	// Lost tells that only a new enrolment helps.
	Lost bool
}

// arcConnected: an Arc machine that Azure has forgotten, or that cannot reach it, gets no tokens;
// and its identity can lose its roles like any other.
func arcConnected(e Evidence) Condition {
	if !e.Wanted.Arc {
		return holds()
	}
	if !e.Arc.Asked {
		return notAsked()
	}
	const mend = "; `aks-flex-node bootstrap` connects it anew"
	a := e.Arc.Value
	switch {
	case e.Arc.Err != nil:
		return fails(OwnerMachine, "AgentSilent", "the Arc agent does not say how it is: "+
			oneLine(e.Arc.Err)+"; check azcmagent show and systemctl status himdsd")
	case a.Machine == "":
		return fails(OwnerAzure, "NotRegistered", "this machine is no longer registered with Azure "+
			"Arc"+mend)
	case a.Lost && a.Refused:
		return fails(OwnerAzure, "NotAccepted", "Azure Arc no longer accepts this machine: "+
			a.Recorded+" was deleted, or its identity has expired"+mend)
	case a.Lost:
		return fails(OwnerAzure, "AnotherMachine", fmt.Sprintf("this machine is registered with Azure "+
			"Arc as %s, and was enrolled as %s", a.Machine, a.Recorded))
	case a.Agent != "Connected":
		return fails(OwnerNetwork, "NotConnected", "the Arc agent does not reach Azure ("+a.Agent+
			"); check its network and proxy (azcmagent check), then systemctl restart himdsd")
	case e.Authorised.OK() && !e.Authorised.Value:
		return fails(OwnerAzure, "RoleMissing", "the cluster no longer authorises the identity of the "+
			"Arc machine, which needs "+e.Wanted.ArcRole+"; `aks-flex-node bootstrap` assigns its "+
			"roles again where azure.arc.autoRoleAssignment is true")
	}
	return holds()
}
