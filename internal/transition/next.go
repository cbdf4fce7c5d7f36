package transition

import (
	"cmp"
	"fmt"
)

// Wanted compares the wanted document with the machine.
type Wanted string

// The relations of the wanted document.
const (
	Unreadable Wanted = "unreadable"
	Current    Wanted = "current"  // the applied document, on the machine that it was rendered for
	Rejected   Wanted = "rejected" // a document that has failed
	New        Wanted = "new"      // any other document
)

// Situation holds everything that decides the next transition.
type Situation struct {
	Record *Transition // the transition on disk; nil if none is under way
	// Leads is set if Record leads to the wanted document, Failed if its target was rejected.
	Leads, Failed bool
	// Applied is the last proved generation; "" on a machine that is not a node.
	Applied  string
	Wanted   Wanted
	Followed bool // the wanted document is from a provider that the node follows
	Asked    bool // a person has asked: then the applied node is restored, with or without drift
	Moved    bool // the API server has another address or CA than the proved one
	Waits    bool // a change must wait for the maintenance window, or for pods to drain
}

// Move is the effect of a decision on the record.
type Move string

// The moves.
const (
	Rest     Move = "rest"     // nothing to do, or it has to wait
	Continue Move = "continue" // continue the record
	Revert   Move = "revert"   // roll the record's change back
	Begin    Move = "begin"    // begin a transition, which replaces the record
	Halt     Move = "halt"     // a person has to help
)

// Decision holds the next action.
type Decision struct {
	Move Move
	// Kind and To are those of the transition to begin. To is "" for the wanted document.
	Kind Kind
	To   string
	// Follows is the kind of the replaced record, from which the transition inherits Touched and
	// Cordoned: the machine differs from the applied state, and the Node is cordoned.
	Follows           Kind
	Touched, Cordoned bool
	Asks              bool  // the transition asks the provider before it disrupts the node
	Until             Phase // the phase before which to stop and decide again; "" for none
	Why               string
}

// Next decides on the next transition. A rollback that has restored the machine gives way to a new
// document. A change to another document of the provider asks before it disrupts the node, unless a
// person starts it or the machine is half another generation, and would be left so.
func Next(s Situation) Decision {
	d := s.next()
	whole := !d.Touched || s.Record.Moves()
	d.Asks = d.Kind == Change && d.To == "" && whole && s.Followed && !s.Asked
	return d
}

func (s Situation) next() Decision {
	r := s.Record
	switch {
	case r == nil:
		return s.fromRest()
	case len(Phases(r.Kind)) == 0:
		return Decision{Move: Halt, Why: fmt.Sprintf(
			"a newer version of this program has begun a transition of kind %q; install that version "+
				"again to finish it", r.Kind)}
	case r.Kind == Leave && !s.Asked:
		return Decision{Move: Continue, Why: "the machine is being given back"}
	case r.Kind == Rollback:
		return s.fromRollback()
	case r.ByHand:
		return s.carryOn("a person has asked for this generation")
	case s.Leads, s.Wanted == Unreadable, (s.Wanted != New || s.Waits) &&
		(r.Moves() || r.Ungated || r.Kind == Change && s.whole()):
		return s.carryOn("another run has begun it")
	}
	return s.replace()
}

func (s Situation) fromRest() Decision {
	switch {
	case s.Applied == "" && s.Wanted == New:
		return Decision{Move: Begin, Kind: Join, Why: "the machine is not a node"}
	case s.Applied == "": // nothing to change or repair
	case s.Wanted == New && !s.Waits:
		return Decision{Move: Begin, Kind: Change, Why: "the configuration has changed"}
	case s.Moved:
		return Decision{Move: Begin, Kind: Change, To: s.Applied, Why: "the API server has moved"}
	case s.Wanted == Current && s.Asked:
		return Decision{Move: Begin, Kind: Repair, To: s.Applied, Why: "a person has asked"}
	case s.Wanted == New:
		return Decision{Move: Rest, Why: "the change has to wait"}
	}
	return Decision{Move: Rest, Why: "the configuration is " + string(s.Wanted)}
}

func (s Situation) fromRollback() Decision {
	d := Decision{Move: Continue, Why: "the rollback is finished first"}
	restoring := s.Record.Phase != Gate && s.Record.Phase != Commit
	switch {
	case s.Wanted != New || s.Waits:
		return d
	case restoring:
		d.Until = Gate
		return d
	}
	return Decision{Move: Begin, Kind: Change, Follows: Rollback, Cordoned: s.Record.Cordoned,
		Why: "the machine is restored, and the configuration has changed"}
}

// whole reports whether the machine already is the applied generation, despite the record.
func (s Situation) whole() bool {
	r := s.Record
	became := r.Phase == Commit || r.Kind == Repair && r.Phase == Gate
	return became && r.To == s.Applied && !r.Moves()
}

// carryOn continues the record, unless a killed process has rejected its generation.
func (s Situation) carryOn(why string) Decision {
	if s.Failed && s.Record.Kind == Change {
		return Decision{Move: Revert, Why: "its generation was rejected"}
	}
	return Decision{Move: Continue, Why: why}
}

func (s Situation) replace() Decision {
	r := s.Record
	d := Decision{
		Move: Begin, Follows: r.Kind, Cordoned: r.Cordoned,
		Touched: r.Touched && !s.whole() || r.Kind == Leave,
	}
	if r.Kind == Repair { // what it follows is unfinished, too
		d.Follows = cmp.Or(r.Follows, Repair)
	}
	switch {
	case s.Applied == "" && s.Wanted == New:
		d.Kind, d.Why = Join, "the configuration has changed during the join"
	case s.Applied == "":
		return Decision{Move: Rest, Why: "the configuration is " + string(s.Wanted)}
	case s.Wanted == New && (!s.Waits || d.Touched):
		d.Kind, d.Why = Change, "the configuration has changed again"
	case s.Wanted == Current && s.Moved:
		d.Kind, d.To, d.Why = Change, s.Applied, "the API server has moved"
	default:
		d.Kind, d.To, d.Why = Repair, s.Applied, "the machine becomes again what was applied"
	}
	return d
}
