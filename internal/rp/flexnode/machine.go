package flexnode

import (
	"fmt"
	"slices"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// ShutOut is the MachineKey of a node whose machine was shut out: no key has it as its thumbprint,
// and only an enrolment secret registers another machine.
const ShutOut = "shut-out"

// SecondMachine is a refused machine: it asked to be another's node, or is a copy with its key.
type SecondMachine struct {
	Key string    `json:"key"` // its thumbprint
	At  time.Time `json:"at"`
}

// Registration is the answer to a machine that registers its key.
type Registration int

const (
	Registered Registration = iota // the key is the node's, already or from now on
	Unenrolled                     // no machine is registered, and the secret does not register one
	Second                         // another machine is the node
)

// Register returns the node after a machine has asked to register its key, by the id of an
// enrolment secret or, with "", by the node's identity in Azure. A secret works once, and replaces
// the previous key.
func (n Node) Register(key, boot, secret string, epoch int64, at time.Time) (Node, Registration) {
	enrols := secret != "" && secret == n.Enrolment
	switch {
	case enrols:
		n = n.Proved(key, boot, epoch, at)
	case n.MachineKey == key && slices.Contains(n.Boots.Refused, boot):
		return n, Second
	case n.MachineKey == key:
	case n.MachineKey == "" && secret == "":
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

// Proved returns the node after its kubelet or an enrolment secret has proved the machine's key.
func (n Node) Proved(key, boot string, epoch int64, at time.Time) Node {
	n.Boots = n.enrolled(key, boot, at)
	n.MachineKey, n.KeyEpoch, n.Enrolment, n.Second = key, epoch, "", nil
	return n
}

// secondMachine returns the condition about another machine that asked to be the node.
func secondMachine(s SecondMachine, own string) api.Condition {
	const so = "If it should be the node, POST regenerateToken and join it with the new URL."
	if s.Key == own {
		return since(s.At, is("True", "SameKey", "Two machines have the key of this node: its "+
			"disk was copied, or a snapshot of its memory was restored. The newer one is refused until "+
			"the older is silent for a day. "+so))
	}
	return since(s.At, is("True", "AnotherKey", fmt.Sprintf("Another machine, with the key %s, has "+
		"requested to be this node and was refused. %s", s.Key, so)))
}

// Boots holds the boot ids, from tokens, of the machines that have the key of a node. A copied disk
// has the same key, but a boot belongs to one machine.
type Boots struct {
	// Current is the boot of the node's machine, first seen at Since.
	Current string    `json:"current,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	// Former holds the machine's previous boots, Refused those of other machines, newest first.
	Former  []string `json:"former,omitempty"`
	Refused []string `json:"refused,omitempty"`
	// Quick counts the last boots that each followed another within quickBoot.
	Quick int `json:"quick,omitempty"`
}

// Boot is the boot that a token names, and the earliest time at which that token was issued.
type Boot struct {
	ID     string
	Issued time.Time
}

const (
	keptBoots  = 4           // the max number of former, and of refused, boots
	bootMargin = time.Minute // the max sum of the clock differences between machine and replicas
	// copySilent is the silence of the older machine after which the newer one takes its place.
	copySilent = 24 * time.Hour
	// copyWaits is the silence of the machine after which an unknown boot counts as its own, while a
	// copy of it is known: the copy could boot at any time, or claim to.
	copyWaits = 10 * time.Minute
	// quickBoot is the time in which an older machine with the key shows a token issued after the
	// newer one's boot, at any pace of polls. Until then quick boots must not push it out of Former.
	quickBoot = 10 * time.Minute
)

// BootVerdict is the verdict about a machine by the boot in its token.
type BootVerdict int

const (
	CurrentBoot BootVerdict = iota // it is the machine of the node
	FormerBoot                     // the token is from before the machine's reboot
	RefusedBoot                    // it is another machine with the same key
	QuickBoot                      // too many boots were seen in a short time
)

// Booted returns the node after a request with a token of a boot. seen is when the node's machine
// was last heard of. A former boot that returns, in a token issued after the present boot was first
// seen, is another machine: the newer of the two is refused, until an enrolment secret decides
// (Register) or the older one has been silent for a day.
func (n Node) Booted(b Boot, seen, now time.Time) (Node, BootVerdict) {
	is, quick, at := n.Boots, 0, slices.Index(n.Boots.Former, b.ID)
	if now.Before(is.Since.Add(quickBoot)) {
		quick = is.Quick + 1
	}
	switch {
	case b.ID == is.Current:
		return n, CurrentBoot
	case slices.Contains(is.Refused, b.ID) && !n.silent(copySilent, seen, now):
		return n, RefusedBoot
	case slices.Contains(is.Refused, b.ID):
		n.Second = nil
		n.Boots = Boots{Current: b.ID, Former: before(is.Current, is.Former)}
	case at < 0 && n.Copied() && !n.silent(copyWaits, seen, now):
		return n, RefusedBoot
	case at < 0 && quick >= keptBoots:
		return n, QuickBoot
	case at < 0:
		n.Boots = Boots{Current: b.ID, Former: before(is.Current, is.Former), Refused: is.Refused,
			Quick: quick}
	case b.Issued.Before(is.Since.Add(bootMargin)):
		return n, FormerBoot
	default:
		n.Second = &SecondMachine{Key: n.MachineKey, At: now.UTC().Truncate(time.Second)}
		n.Boots = Boots{Current: b.ID, Former: is.Former[at+1:],
			Refused: before(is.Current, slices.Concat(is.Former[:at], is.Refused))}
	}
	n.Boots.Since = now.UTC().Truncate(time.Second)
	return n, CurrentBoot
}

// Copied reports whether another machine with the node's key is known.
func (n Node) Copied() bool { return n.Second != nil && n.Second.Key == n.MachineKey }

// silent reports whether a machine beside which another was seen has been silent for so long. It is
// false without a second machine: an owner has decided which one is the node's.
func (n Node) silent(since time.Duration, seen, now time.Time) bool {
	return n.Second != nil && now.Sub(latest(seen, n.Second.At)) >= since
}

// before puts an id before others, and keeps at most keptBoots.
func before(id string, others []string) []string {
	if id == "" {
		return others
	}
	return append([]string{id}, others[:min(len(others), keptBoots-1)]...)
}

// enrolled returns the boots after a key was registered by a secret; others with that key are
// refused.
func (n Node) enrolled(key, boot string, at time.Time) Boots {
	b := Boots{Current: boot, Since: at.UTC().Truncate(time.Second)}
	if key == n.MachineKey {
		others := append(before(n.Boots.Current, n.Boots.Former), n.Boots.Refused...)
		others = slices.DeleteFunc(others, func(id string) bool { return id == boot })
		b.Refused = others[:min(len(others), keptBoots)]
	}
	return b
}
