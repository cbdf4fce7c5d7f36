package flexnode

import (
	"fmt"
	"slices"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// SecondMachine is a machine that wanted to be a node that another machine is. One with the key of
// the node is a copy of its machine.
type SecondMachine struct {
	Key string    `json:"key"` // its thumbprint
	At  time.Time `json:"at"`
}

// Registration is the answer to a machine that registers its key.
type Registration int

const (
	// Registered: the key is the node's, as it was before, or from now on.
	Registered Registration = iota
	// Unenrolled: no machine has registered, and the secret is not the one that would.
	Unenrolled
	// Second: another machine is the node.
	Second
)

// Register returns what a node is after a machine asks, in a boot of it, to register its key, by an
// enrolment secret with an id, or, with "", by the node's identity in Azure. A secret registers one
// key. It replaces the key of the machine before: the owner has asked for it since that machine has
// registered.
func (n Node) Register(key, boot, enrolment string, at time.Time) (Node, Registration) {
	enrols := enrolment != "" && enrolment == n.Enrolment
	switch {
	case enrols:
		n = n.Proved(key, boot, at)
	case n.MachineKey == key && slices.Contains(n.Boots.Refused, boot):
		return n, Second
	case n.MachineKey == key:
	case n.MachineKey == "" && enrolment == "":
		n.Boots, n.MachineKey = n.enrolled(key, boot, at), key
	case n.MachineKey == "":
		return n, Unenrolled
	case n.Second == nil || n.Second.Key != key:
		n.Second = &SecondMachine{Key: key, At: at.UTC().Truncate(time.Second)}
		return n, Second
	default:
		return n, Second
	}
	return n, Registered
}

// Proved returns what a node is after its kubelet has proved which machine it is, since the store does
// not know its key.
func (n Node) Proved(key, boot string, at time.Time) Node {
	n.Boots = n.enrolled(key, boot, at)
	n.MachineKey, n.Enrolment, n.Second = key, "", nil
	return n
}

// secondMachine tells of another machine that wanted to be the node.
func secondMachine(s SecondMachine, own string) api.Condition {
	c := condition(SecondMachineSeen, "True", "AnotherKey", fmt.Sprintf("Another machine has asked to "+
		"be this node, with the key %s, and was refused. If it is to be the node, POST "+
		"regenerateToken and give it the new URL.", s.Key))
	if s.Key == own {
		c.Reason = "SameKey"
		c.Message = "Two machines have the key of this node: its disk was copied, or a snapshot of its " +
			"memory was restored. The newer one is refused until the older is silent for a day. If it " +
			"is to be the node, POST regenerateToken and give it the new URL."
	}
	c.LastTransitionTime = s.At
	return c
}
