package health

// Metadata is the result of a connection to the machine's metadata service from the network of a
// pod.
type Metadata struct {
	// Guarded reports that the rules which reject it are loaded.
	Guarded bool
	// Tried is false where no pod has a network of its own.
	Tried bool
	// Reached and Refused report how the connection ended; neither is a timeout.
	Reached, Refused bool
}

// metadataGuarded: a pod that reaches the metadata service of its machine has the machine's
// identity.
func metadataGuarded(e Evidence) Condition {
	m := e.Metadata
	switch {
	case e.Wanted.MetadataAllowed:
		return unknown("Allowed", "network.metadata is allow: pods may reach the metadata service of "+
			"this machine")
	case !m.OK():
		return m.missing()
	case m.Value.Reached:
		return fails(OwnerMachine, "MetadataReachable", "a pod can connect to the metadata service "+
			"at 169.254.169.254, and so use the identity of this machine: the rules are not loaded, "+
			"or the pod network bypasses netfilter; `aks-flex-node drift --repair` loads them, a "+
			"network policy is needed for the other")
	case !m.Value.Guarded:
		return fails(OwnerMachine, "RulesNotLoaded", "the rules that keep pods from the metadata "+
			"service are not loaded: `aks-flex-node drift --repair` loads them")
	case !m.Value.Tried:
		return unknown(notChecked, "the rules are loaded; no pod with a network of its own runs here "+
			"from which to try them")
	case m.Value.Refused:
		return holds()
	}
	return unknown("NotAnswered", "the rules are loaded; a connection from a pod was neither "+
		"refused nor answered")
}
