package flexnode

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// HasSlot reports whether a node holds a slot.
func (c Candidate) HasSlot() bool { return c.Attempt.holds() }

// State is the progress of a change in a cluster.
type State struct {
	Change
	Since time.Time `json:"since"`
	// Failed holds the uids of the first nodes that failed the change. More counts the others whose
	// last attempt it is. Proved reports that its canaries were good.
	Failed []string `json:"failed,omitempty"`
	More   int      `json:"more,omitempty"`
	Proved bool     `json:"proved,omitempty"`
	// Waiting, Trying, Good and Unknown count nodes.
	Waiting int `json:"waiting,omitempty"`
	Trying  int `json:"trying,omitempty"`
	Good    int `json:"good,omitempty"`
	Unknown int `json:"unknown,omitempty"`
	// Hold is the reason that no node is admitted; "" if some are.
	Hold string `json:"hold,omitempty"`
	// By allows Allowed failed and AllowedUnknown unknown nodes until Until.
	Allowed        int       `json:"allowed,omitempty"`
	AllowedUnknown int       `json:"allowedUnknown,omitempty"`
	Until          time.Time `json:"until,omitzero"`
	By             string    `json:"by,omitempty"`
}

// The reasons that a change admits no node.
const (
	HeldPaused   = "Paused"
	HeldCanary   = "CanaryFailed"
	HeldFailed   = "TooManyFailed"
	HeldUnknown  = "TooManyUnknown"
	maxStates    = 16
	maxFailedIDs = 100
	Unreadable   = "unreadable" // the change of a node that cannot be compared now: it is left alone
)

// Admit decides which revision each node of a cluster is offered. It returns the nodes whose rows
// change (Assigned, Refused, Attempt, FailedChanges) and the state of each change; before holds the
// states that its last call returned. It reads no clock: equal arguments give equal results.
//
// A revision that neither restarts nor drains is assigned at once, and so is the revision of a
// joining node. Every other change needs a slot. Slots are not counted anywhere: a slot is an
// attempt whose node has not been Ready yet, or is not Ready any more, so none can leak.
func Admit(p Policy, nodes []Candidate, before []State, now time.Time) ([]Candidate, []State) {
	a := admission{policy: p, now: now, states: map[string]*State{}, leftOut: map[string]bool{},
		speakers: map[string]string{}}
	for _, s := range before {
		s.Waiting, s.Trying, s.Good, s.Unknown, s.Hold = 0, 0, 0, 0, ""
		s.Failed = slices.Clone(s.Failed)
		a.states[s.ID] = &s
	}
	next := slices.Clone(nodes)
	for i := range next {
		a.judge(&next[i])
		a.count(&next[i])
	}
	for _, s := range a.states { // failures of nodes that are left out do not count
		s.Failed = slices.DeleteFunc(s.Failed, func(uid string) bool { return a.leftOut[uid] })
		s.Proved = s.Proved || p.Canaries > 0 && s.Good >= p.Canaries
	}
	for i := range next {
		a.settle(&next[i])
	}
	a.grant(next)
	return changed(nodes, next), a.list()
}

type admission struct {
	policy  Policy
	now     time.Time
	states  map[string]*State
	leftOut map[string]bool // by uid
	// speakers holds the identities that report for nodes, by uid.
	speakers map[string]string
	// counted is the number of nodes that the budget is a share of, slots the number of slots taken.
	counted, slots int
}

// state returns the state of a change; nil for none.
func (a *admission) state(c Change) *State {
	if c.ID == "" {
		return nil
	}
	if a.states[c.ID] == nil {
		a.states[c.ID] = &State{Change: c, Since: a.now}
	}
	return a.states[c.ID]
}

// judge ends the attempt of a node when its outcome is known.
func (a *admission) judge(c *Candidate) {
	if !c.Attempt.pending() {
		return
	}
	if c.Restored { // the attempt is out of date: the store was restored from a backup
		c.Attempt = nil
		return
	}
	at := *c.Attempt
	runs, late := c.Applied == at.Revision && c.Heard && c.Ready == "True", at.Outcome == Unknown
	switch {
	case c.Failed == at.Revision && c.Applied != at.Revision && c.ByHand:
		c.Attempt = nil
		return
	case c.Failed == at.Revision && c.Applied != at.Revision:
		at.Outcome = Bad
	case (!at.Ready.IsZero() || late && c.Applied == at.Revision) && c.Heard && c.Ready == "False":
		at.Outcome = Bad
	case runs && at.Ready.IsZero():
		at.Ready = a.now
		fallthrough
	case runs:
		if a.now.Sub(at.Ready) >= a.policy.Soak {
			at.Outcome = Good
		}
	case c.disturbed() && (!at.Until.After(at.Ended) || a.now.Sub(at.Until) >= a.policy.Deadline):
		// it goes on, at first or after a pause, and has as long again
		at.Until = a.now.Add(a.policy.Deadline)
	case c.disturbed() && !a.now.Before(at.Until):
		at.Outcome = Bad
	case late:
		return
	case at.Ready.IsZero() && a.now.Before(latest(at.At.Add(a.policy.Deadline), at.Until)),
		!at.Ready.IsZero() && a.now.Sub(at.Ready) < a.policy.Deadline+a.policy.Soak:
		return
	case c.Heard && c.Ready == "False" && (!at.Until.IsZero() || c.Applied == at.Revision):
		at.Outcome = Bad
	default:
		at.Outcome = Unknown
	}
	c.Attempt = &at
	switch at.Outcome {
	case Good:
		c.FailedChanges = nil
	case Bad:
		if at.Change != "" && !slices.Contains(c.FailedChanges, at.Change) {
			all := append(slices.Clone(c.FailedChanges), at.Change)
			c.FailedChanges = all[max(0, len(all)-leftOutAfter):]
		}
	}
	if at.Outcome != "" && (at.Ended.IsZero() || at.Outcome != Unknown) {
		at.Ended = a.now
	}
}

// count adds a node to the state of its attempt's change, and to the nodes that the budget counts.
func (a *admission) count(c *Candidate) {
	if c.leftOut() {
		a.leftOut[c.UID] = true
	} else if c.Follows && c.Applied != 0 {
		a.counted++
	}
	if c.Speaker != "" {
		a.speakers[c.UID] = c.Speaker
	}
	if c.away() {
		a.slots++
	}
	if c.Attempt == nil || c.Attempt.Change == "" {
		return
	}
	s := a.state(Change{ID: c.Attempt.Change})
	if len(s.Settings) == 0 && c.Change.ID == s.ID {
		s.Settings = c.Change.Settings
	}
	switch c.Attempt.Outcome {
	case "":
		s.Trying++
	case Good:
		s.Good++
		s.Failed = slices.DeleteFunc(s.Failed, func(uid string) bool { return uid == c.UID })
	case Unknown:
		if !c.leftOut() && (!c.Asks || !c.Heard) {
			s.Unknown++
		}
	case Bad:
		s.fail(c.UID)
	}
}

func (s *State) fail(uid string) {
	if !slices.Contains(s.Failed, uid) {
		s.Failed = append(s.Failed, uid)
	}
}

// failed counts the failures of a change. Nodes for which one identity reports count as one.
func (a *admission) failed(s *State) int {
	who := map[string]bool{}
	for _, uid := range s.Failed {
		who[cmp.Or(a.speakers[uid], uid)] = true
	}
	return len(who)
}

// away reports whether a node counts against the budget: it holds a slot, is not Ready any more
// after its change, or is disturbed.
func (c Candidate) away() bool {
	return c.Attempt.open() && (c.Attempt.Ready.IsZero() || c.Ready != "True") || c.disturbed()
}

// disturbed reports whether a node is carrying out a change although its slot went to another node:
// a machine that was off for long goes on without asking again.
func (c Candidate) disturbed() bool {
	return c.Attempt != nil && c.Attempt.Outcome == Unknown && !c.Attempt.Until.IsZero() && !c.Asks &&
		c.Heard && c.Applied != c.Attempt.Revision && c.Ready == "False"
}

func (a *admission) proved(s *State) bool { return s.Proved || s.Good >= a.policy.Canaries }

// settle makes those moves of a node that need no slot.
func (a *admission) settle(c *Candidate) {
	if c.Restored || c.Change.ID == Unreadable {
		return
	}
	switch {
	case c.Applied == c.Desired:
		c.Refused = 0
	case c.Failed == c.Desired && (!c.Attempt.open() || c.Attempt.Revision != c.Desired):
		c.Refused = c.Desired
	}
	switch {
	case c.Same: // the agent is at it already
		a.offer(c)
	case c.Refused == c.Desired && c.Desired != 0:
		if c.Assigned == c.Desired && c.Kept {
			c.Assigned = c.Applied
		}
	case c.Assigned == c.Desired:
		if c.Attempt.pending() && c.Attempt.Revision != c.Desired {
			a.offer(c)
		}
	case c.Applied == c.Desired, !c.Change.needsSlot(c.Applied == 0 || !c.Follows):
		a.offer(c)
	}
}

// needsSlot reports whether a node needs a slot for a change. A node that joins needs none, nor
// does a change that neither restarts nor drains. PUT and rollback use it too, for a node that runs
// the revision it is offered.
func (c Change) needsSlot(joins bool) bool { return !joins && c.ID != "" }

// offer assigns the desired revision. A pending attempt continues with it. A change that the node
// began and leaves before it was Ready has failed: the next canary must not break, too, while an
// owner sets the fix for one node after another. A node that runs the change has not left it if
// nothing else restarts or drains it.
func (a *admission) offer(c *Candidate) {
	c.Assigned = c.Desired
	if c.Attempt.pending() {
		at := *c.Attempt
		begun := !at.Until.IsZero() || c.Applied == at.Revision
		stays := c.Applied == at.Revision && c.Change.ID == ""
		at.Revision = c.Desired
		if at.Ready.IsZero() && at.Change != c.Change.ID && !stays {
			if s := a.states[at.Change]; s != nil && begun {
				s.fail(c.UID)
			}
			at.Change, at.At = c.Change.ID, a.now
		}
		c.Attempt = &at
	}
}

// grant hands out the free slots. A node that holds a slot uses it for its newest revision. First
// come the nodes that a person insists on, then those that are Ready and have failed least, so that
// a broken node is no canary. Last come those that had a slot and did not answer, so that a node
// whose pods do not move blocks no other.
func (a *admission) grant(nodes []Candidate) {
	var waiting []*Candidate
	for i := range nodes {
		c := &nodes[i]
		if c.Refused == c.Desired || c.leftOut() || c.Restored ||
			c.Assigned == c.Desired && (!c.Asks || c.Attempt.open()) {
			continue
		}
		s := a.state(c.Change)
		if c.Change.ID != Unreadable && c.Attempt.holds() && a.takes(c) {
			if was := a.states[c.Attempt.Change]; was != nil {
				was.Trying--
			}
			if s != nil {
				s.Trying++
			}
			a.offer(c)
		} else if s != nil {
			s.Waiting++
			waiting = append(waiting, c)
		}
	}
	slices.SortStableFunc(waiting, func(x, y *Candidate) int {
		return cmp.Or(cmp.Compare(x.turn(), y.turn()), x.ended().Compare(y.ended()),
			cmp.Compare(len(x.FailedChanges), len(y.FailedChanges)),
			cmp.Compare(x.Desired, y.Desired), strings.Compare(x.Key, y.Key))
	})
	most := a.policy.MaxUnavailable.Of(a.counted)
	for _, c := range waiting {
		away := c.away() // it has been counted
		if !away && a.slots >= most || !c.Heard || !c.Open || c.Attempt.holds() || !a.admits(c) {
			continue
		}
		if !away {
			a.slots++
		}
		s := a.state(c.Change)
		s.Waiting, s.Trying = s.Waiting-1, s.Trying+1
		c.Assigned = c.Desired
		c.Attempt = &Attempt{Change: c.Change.ID, Revision: c.Desired, Since: a.now, At: a.now}
	}
}

// turn returns the rank of a waiting node: 0 if a person insists on its change, 1 if it is Ready, 3
// if its slot for this change ended without an answer, and 2 otherwise.
func (c Candidate) turn() int {
	switch {
	case c.Insisted:
		return 0
	case !c.ended().IsZero():
		return 3
	case c.Ready == "True":
		return 1
	}
	return 2
}

// ended returns when the node's slot for this change ended without an answer; zero for none.
func (c Candidate) ended() (at time.Time) {
	if c.Attempt != nil && c.Attempt.Outcome == Unknown && c.Attempt.Change == c.Change.ID {
		at = c.Attempt.Ended
	}
	return at
}

// takes reports whether a node that holds a slot may use it for its newest revision: for another
// change only before the slot's deadline, so that no owner keeps a slot for ever.
func (a *admission) takes(c *Candidate) bool {
	return c.Attempt.Change == c.Change.ID ||
		a.now.Sub(c.Attempt.Since) < a.policy.Deadline && a.admits(c)
}

// admits reports whether the change of a node admits one more node.
func (a *admission) admits(c *Candidate) bool {
	if a.policy.Paused {
		return false
	}
	s := a.state(c.Change)
	return c.Insisted || s == nil ||
		a.hold(s) == "" && (a.proved(s) || s.Good+s.Trying < a.policy.Canaries)
}

// hold returns the reason that a change admits no node; "" if it admits some.
func (a *admission) hold(s *State) string {
	failed, proved, tolerated := a.failed(s), a.proved(s), 0
	unknown := a.policy.MaxUnknown.Of(a.counted)
	if proved {
		tolerated = a.policy.MaxFailed
	}
	if a.now.Before(s.Until) {
		tolerated, unknown = max(tolerated, s.Allowed), max(unknown, s.AllowedUnknown)
	}
	switch {
	case a.policy.Paused:
		return HeldPaused
	case failed > tolerated && proved:
		return HeldFailed
	case failed > tolerated:
		return HeldCanary
	case s.Unknown > unknown:
		return HeldUnknown
	}
	return ""
}

// list returns the states worth keeping, at most maxStates: of changes that a node waits for or
// tries, and of changes that failed. First come failed changes that nodes wait for, then others
// that nodes wait for or try, both oldest first; then the other failed ones, newest first.
func (a *admission) list() []State {
	var all []State
	for _, s := range a.states {
		if s.Waiting+s.Trying+len(s.Failed) > 0 {
			s.Hold = a.hold(s)
			s.More = max(0, len(s.Failed)-maxFailedIDs) // count finds them again
			s.Failed = s.Failed[:len(s.Failed)-s.More]
			all = append(all, *s)
		}
	}
	slices.SortFunc(all, func(x, y State) int {
		since := x.Since.Compare(y.Since)
		if x.rank() == 2 {
			since = -since
		}
		return cmp.Or(cmp.Compare(x.rank(), y.rank()), since, strings.Compare(x.ID, y.ID))
	})
	return all[:min(len(all), maxStates)]
}

func (s State) rank() int {
	switch {
	case s.Waiting > 0 && len(s.Failed) > 0:
		return 0
	case s.Waiting+s.Trying > 0:
		return 1
	}
	return 2
}

func changed(before, after []Candidate) (all []Candidate) {
	for i, n := range after {
		o := before[i]
		same := n.Attempt == o.Attempt || n.Attempt != nil && o.Attempt != nil && *n.Attempt == *o.Attempt
		if !same || n.Assigned != o.Assigned || n.Refused != o.Refused ||
			!slices.Equal(n.FailedChanges, o.FailedChanges) {
			all = append(all, n)
		}
	}
	return all
}

// leftOut reports whether the node has failed so many changes that it is admitted to none.
func (n Node) leftOut() bool {
	return len(n.FailedChanges) >= leftOutAfter && n.Insisted != n.Revision
}
