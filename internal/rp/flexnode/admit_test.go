package flexnode

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// upgrade returns a change to a version of Kubernetes.
func upgrade(version string) Change {
	to := map[string]any{"kubernetes": map[string]any{"version": version}}
	return ChangeOf(map[string]any{"kubernetes": map[string]any{"version": "1.34.4"}}, to)
}

// runs returns a node that runs revision 1, is Ready, and has a desired revision.
func runs(name string, desired int64, change Change) Candidate {
	return Candidate{
		Key: "c/" + name, UID: "uid-" + name, Desired: desired, Assigned: 1, Applied: 1, Change: change,
		Follows: true, Heard: true, Open: true, Kept: true, Ready: "True",
	}
}

// take makes a node what it is, in steps.
func (c *Candidate) take(steps []step) {
	for _, step := range steps {
		step(c)
	}
}

func policyOf(given RolloutPolicy) Policy {
	p, problems := ReadPolicy(&given)
	return must(p, problems.err())
}

// named returns the names of the nodes of which something is true before and after a round.
func named(nodes, moves []Candidate, is func(before, after Candidate) bool) string {
	var names []string
	for _, before := range nodes {
		after := before
		if i := slices.IndexFunc(moves, func(m Candidate) bool { return m.Key == before.Key }); i >= 0 {
			after = moves[i]
		}
		if is(before, after) {
			names = append(names, strings.TrimPrefix(before.Key, "c/"))
		}
	}
	return strings.Join(names, " ")
}

// admitted reports whether the round has moved a node to its desired revision.
func admitted(before, after Candidate) bool {
	return after.Assigned == before.Desired && before.Assigned != after.Assigned
}

func holding(_, after Candidate) bool { return after.Attempt.holds() }

func attempt(change Change, at time.Duration, outcome string) *Attempt {
	a := &Attempt{Change: change.ID, Revision: 2, At: began.Add(at), Outcome: outcome}
	a.Since = a.At
	if outcome == Good {
		a.Ready = a.At
	}
	return a
}

// step makes a node of a case what it is, each has the steps of each node.
type (
	step = func(*Candidate)
	each [][]step
)

// wanted is the change from revision 1 to 2 in the cases of Admit.
var wanted, other = upgrade("1.35.0"), upgrade("1.35.1")

// under gives a node its slot for the change so long ago.
func under(ago time.Duration) step {
	return func(n *Candidate) { n.Assigned, n.Attempt = 2, attempt(wanted, -ago, "") }
}

// unheard is under, and the slot has ended without an answer.
func unheard(ago time.Duration) step {
	return func(n *Candidate) { n.Assigned, n.Attempt = 2, attempt(wanted, -ago, Unknown) }
}

// begun has its agent have begun, until d from now; ended has its slot have ended, and wasReady the
// node be Ready for the first time, d ago.
func begun(d time.Duration) step { return func(n *Candidate) { n.Attempt.Until = began.Add(d) } }
func ended(d time.Duration) step { return func(n *Candidate) { n.Attempt.Ended = began.Add(-d) } }

func wasReady(d time.Duration) step {
	return func(n *Candidate) { n.Attempt.Ready = began.Add(-d) }
}

func ready(status string) step { return func(n *Candidate) { n.Ready = status } }

func wants(revision int64, change Change) step {
	return func(n *Candidate) { n.Desired, n.Change = revision, change }
}

func failedBefore(changes ...string) step {
	return func(n *Candidate) { n.FailedChanges = changes }
}

func assigned(n *Candidate) { n.Assigned = 2 }
func applied(n *Candidate)  { n.Applied = 2 }
func failed(n *Candidate)   { n.Failed = 2 }
func silent(n *Candidate)   { n.Heard = false }
func asks(n *Candidate)     { n.Asks = true }
func insists(n *Candidate)  { n.Insisted = true }
func joins(n *Candidate)    { n.Applied = 0 }
func strays(n *Candidate)   { n.Follows = false }
func shared(n *Candidate)   { n.Speaker = "app:t/shared" }
func bad(n *Candidate)      { n.Refused, n.Attempt = 2, attempt(wanted, -time.Minute, Bad) }

func good(n *Candidate) {
	n.Assigned, n.Applied, n.Attempt = 2, 2, attempt(wanted, -time.Hour, Good)
}

// TestAdmit tests one round in small clusters. Every case has nodes whose desired revision is 2.
func TestAdmit(t *testing.T) {
	half, paused := RolloutPolicy{MaxUnavailable: "50%"}, RolloutPolicy{Paused: true}
	gone := []State{{Change: wanted, Failed: []string{"uid-gone"}}}
	allowed := func(n int, until time.Duration) []State {
		return []State{{Change: wanted, Allowed: n, Until: began.Add(until)}}
	}
	first101 := append(each{{good}}, slices.Repeat(each{{bad}}, 101)...)
	for name, tt := range map[string]struct {
		nodes  int
		policy RolloutPolicy
		before []State
		are    each
		want   string // names of the nodes that are moved to the desired revision
		slots  string // names of the nodes with a slot for it then, if they differ
		hold   string // of the change
	}{
		"one node":   {nodes: 1, want: "0"},
		"two nodes":  {nodes: 2, want: "0"},
		"five nodes": {nodes: 5, want: "0"},
		"half of five nodes at once and a canary first": {nodes: 5, policy: half, want: "0"},
		"half of them at once and three canaries": {nodes: 5,
			policy: RolloutPolicy{MaxUnavailable: "50%", Canaries: new(3)}, want: "0 1"},
		"all at once": {nodes: 3,
			policy: RolloutPolicy{MaxUnavailable: "100%", Canaries: new(0)}, want: "0 1 2"},
		"the canary is at it": {nodes: 3, are: each{{under(minute)}}},
		"the canary soaks":    {nodes: 3, are: each{{under(minute), applied, wasReady(minute)}}},
		"the canary has soaked": {nodes: 3,
			are: each{{under(20 * minute), applied, wasReady(11 * minute)}}, want: "1"},
		"a node that is Ready after the canary gives its slot back": {nodes: 4,
			are: each{{good}, {under(minute), applied}}, want: "2"},
		"a node that was Ready after its change and is not any more has its slot": {nodes: 4,
			are: each{{good}, {under(5 * minute), applied, wasReady(3 * minute), ready("Unknown")}}},
		"its owner gives it another version": {nodes: 4, are: each{{good},
			{under(5 * minute), applied, wasReady(3 * minute), ready("Unknown"), wants(3, other)}},
			want: "1"},
		"another change needs a canary of its own and the budget is the cluster's": {nodes: 3,
			are: each{{under(minute)}, {wants(2, upgrade("1.36.0"))}}},
		"the canary has failed": {nodes: 3, are: each{{bad}}, hold: HeldCanary},
		"the canary fails now and goes back": {nodes: 3, are: each{{under(minute), failed}},
			hold: HeldCanary},
		"the canary is not Ready while its agent is heard": {nodes: 3,
			are:  each{{under(minute), applied, wasReady(minute), ready("False")}},
			hold: HeldCanary},
		"the canary is given another version before it is Ready": {nodes: 4, policy: half,
			are:  each{{under(minute), applied, ready("Unknown"), wants(3, other)}},
			want: "0", hold: HeldCanary},
		"the canary is given another label before it is Ready": {nodes: 4, policy: half,
			are:  each{{under(minute), applied, ready("Unknown"), wants(3, Change{})}},
			want: "0", slots: "0"},
		"the canary is given its former version while it is at it": {nodes: 4, policy: half,
			are:  each{{under(minute), begun(minute), wants(1, Change{})}},
			want: "0", slots: "0", hold: HeldCanary},
		"the canary is given another version before it begins": {nodes: 4, policy: half,
			are: each{{under(minute), wants(3, other)}}, want: "0 1"},
		"the canary has failed as is allowed": {nodes: 3, are: each{{bad}},
			before: allowed(1, hour), want: "1"},
		"the canary has failed as was allowed": {nodes: 3, are: each{{bad}},
			before: allowed(1, -hour), hold: HeldCanary},
		"a node that wants something else now has failed it": {nodes: 3, before: gone,
			hold: HeldCanary},
		"one more has failed after a good canary": {nodes: 4, are: each{{good}, {bad}}, want: "2"},
		"two more have failed after a good canary": {nodes: 4, are: each{{good}, {bad}, {bad}},
			hold: HeldFailed},
		"more have failed than are kept": {nodes: 160,
			policy: RolloutPolicy{MaxFailed: new(100)}, are: first101, hold: HeldFailed},
		"more are allowed than are kept": {nodes: 160, policy: RolloutPolicy{MaxUnavailable: "1"},
			before: allowed(101, hour), are: first101, want: "102"},
		"two more for which one identity reports": {nodes: 4,
			are: each{{good}, {bad, shared}, {bad, shared}}, want: "3"},
		"they want another version since": {nodes: 4,
			are:    append(each{{good}}, slices.Repeat(each{{shared, wants(3, upgrade("1.36.0"))}}, 2)...),
			before: []State{{Change: wanted, Failed: []string{"uid-1", "uid-2"}}}, want: "3"},
		"one that was left out does not count": {nodes: 3,
			are: each{{bad, failedBefore("a", "b", wanted.ID)}}, want: "1"},
		"one that has failed before is no canary": {nodes: 3, are: each{{failedBefore("a")}},
			want: "1"},
		"one that has failed three changes is left out": {nodes: 1,
			are: each{{failedBefore("a", "b", "c")}}},
		"unless a person insists": {nodes: 1, are: each{{failedBefore("a", "b", "c"), insists}},
			want: "0"},
		"a person insists on what others have failed": {nodes: 2, are: each{{bad}, {insists}},
			want: "1", hold: HeldCanary},
		"no answer by the deadline": {nodes: 3, are: each{{under(31 * minute), silent}}, want: "1"},
		"too many give no answer": {nodes: 4,
			are: slices.Repeat(each{{unheard(hour), silent}}, 2), hold: HeldUnknown},
		"a node that is not Ready is no canary": {nodes: 2, are: each{{ready("False")}}, want: "1"},
		"proved once but the canary wants something else": {nodes: 2,
			before: []State{{Change: wanted, Proved: true, Failed: []string{"uid-gone"}}}, want: "0"},
		"one that was left out is gone": {nodes: 2,
			are:    each{{failedBefore("a", "b", wanted.ID)}},
			before: []State{{Change: wanted, Failed: []string{"uid-0"}}}, want: "1"},
		"a node without a slot is at it still": {nodes: 2,
			are: each{{unheard(hour), begun(-minute), ended(minute), ready("False")}}},
		"but not for ever": {nodes: 2, are: each{
			{unheard(hour), begun(0), ended(minute), ready("False")}, {wants(2, other)}},
			want: "1", hold: HeldCanary},
		"one that has not begun is not at it": {nodes: 2, are: each{{unheard(hour), ready("False")}},
			want: "1"},
		"nor one that asks again": {nodes: 2, are: each{{unheard(hour), ready("False"), asks}},
			want: "1"},
		"a node that has begun keeps its slot until it is done": {nodes: 2,
			are: each{{under(hour), begun(minute)}}},
		"and not for longer": {nodes: 2, are: each{{under(hour), begun(0)}}, want: "1"},
		"a node that asks gets a slot again": {nodes: 1, are: each{{unheard(hour), asks}},
			slots: "0"},
		"one that does not ask has none": {nodes: 1, are: each{{unheard(hour)}}},
		"one that asks waits for the budget": {nodes: 2, are: each{{assigned, asks}, {under(minute)}},
			slots: "1"},
		"one that has had its slot comes last": {nodes: 2,
			are: each{{unheard(hour), asks, ended(minute)}}, want: "1"},
		"those that ask are heard and unknown no more": {nodes: 4,
			are: slices.Repeat(each{{unheard(hour), asks}}, 2), slots: "0"},
		"its address has changed while it was at it": {nodes: 1, are: each{
			{unheard(hour), wants(3, wanted), func(n *Candidate) { n.Same = true }}}, want: "0"},
		"offline or outside its window": {nodes: 3,
			are: each{{silent}, {func(n *Candidate) { n.Open = false }}}, want: "2"},
		"the store was restored and knows not what they run": {nodes: 2, are: each{
			{func(n *Candidate) { n.Applied, n.Restored = 9, true }},
			{func(n *Candidate) { n.Restored = true }, wants(2, Change{})}}},
		"their configurations cannot be read": {nodes: 3, are: each{
			{under(minute), begun(minute), wants(3, Change{ID: Unreadable})},
			{under(minute), begun(minute), wants(3, Change{ID: Unreadable}), strays}},
			slots: "0 1"},
		"paused":   {nodes: 2, policy: paused, hold: HeldPaused},
		"it joins": {nodes: 2, are: each{{joins}, {joins}}, want: "0 1"},
		"the budget does not count joins": {nodes: 5, policy: half,
			are: each{{good}, {}, {}, {joins}, {joins}}, want: "1 3 4"},
		"no node follows": {nodes: 2, are: each{{strays}, {strays}}, want: "0 1"},
		"neither restarts nor drains while it is paused": {nodes: 2, policy: paused,
			are: slices.Repeat(each{{wants(2, Change{})}}, 2), want: "0 1"},
		"it runs it already": {nodes: 1, are: each{{applied}}, want: "0"},
		"a node with a slot takes its newest revision in it": {nodes: 2,
			are: each{{under(minute), wants(3, other)}}, want: "0"},
		"but not for longer than its deadline": {nodes: 1, are: each{{under(minute), wants(3, other),
			func(n *Candidate) { n.Attempt.Since = began.Add(-31 * minute) }}}},
		"not one that others have failed": {nodes: 2, before: gone, hold: HeldCanary, are: each{{
			assigned, wants(3, wanted), func(n *Candidate) { n.Attempt = attempt(other, -minute, "") }}}},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []Candidate // which all want revision 2
			for i := range tt.nodes {
				nodes = append(nodes, runs(fmt.Sprint(i), 2, wanted))
			}
			for i, steps := range tt.are {
				nodes[i].take(steps)
			}
			moves, states := Admit(policyOf(tt.policy), nodes, tt.before, began)
			expect(t, fmt.Sprintf("admitted with %+v", states), named(nodes, moves, admitted), tt.want)
			if tt.slots != "" {
				expect(t, "those that have a slot", named(nodes, moves, holding), tt.slots)
			}
			hold := ""
			for _, s := range states {
				if s.ID == wanted.ID {
					hold = s.Hold
				}
			}
			expect(t, "why it is held", hold, tt.hold)
		})
	}
}

// TestAdmitJudges tests the outcomes of a change of one node.
func TestAdmitJudges(t *testing.T) {
	byHand := func(n *Candidate) { n.ByHand = true }
	for name, tt := range map[string]struct {
		is   []step
		want string // the revision it is offered, if it was Ready, its outcome, what it has failed
	}{
		"at work":                          {nil, "2"},
		"not Ready":                        {[]step{ready("False")}, "2"},
		"applied":                          {[]step{applied}, "2 Ready"},
		"applied and not Ready yet":        {[]step{applied, ready("False")}, "2"},
		"applied and soaked and not heard": {[]step{applied, silent, wasReady(11 * minute)}, "2 Ready"},
		"applied and not heard for longer": {[]step{applied, silent, wasReady(41 * minute)},
			"2 Ready Unknown"},
		"good":         {[]step{applied, wasReady(10 * minute), failedBefore("0", "1")}, "2 Ready Good"},
		"failed":       {[]step{failed, failedBefore("0")}, "1 Bad, refuses 2, 2 failed changes"},
		"failed again": {[]step{failed, failedBefore(wanted.ID)}, "1 Bad, refuses 2, 1 failed changes"},
		"failed and what it ran is not kept": {
			[]step{failed, func(n *Candidate) { n.Kept = false }}, "2 Bad, refuses 2, 1 failed changes"},
		"rolled back by hand": {[]step{failed, byHand}, "1, refuses 2"},
		"not Ready at the deadline": {[]step{under(30 * minute), begun(0), ready("False")},
			"2 Bad, 1 failed changes"},
		"not Ready at the deadline and not begun": {[]step{under(30 * minute), ready("False")},
			"2 Unknown"},
		"begun and not done at the deadline": {
			[]step{under(30 * minute), begun(minute), ready("False")}, "2"},
		"still at work at the deadline": {[]step{under(30 * minute)}, "2 Unknown"},
		"Ready after the deadline":      {[]step{unheard(hour), applied}, "2 Ready Unknown"},
		"good after the deadline": {[]step{unheard(hour), applied, wasReady(10 * minute)},
			"2 Ready Good"},
		"applied after the deadline and not Ready": {[]step{unheard(hour), applied, ready("False")},
			"2 Bad, 1 failed changes"},
		"the store was restored": {
			[]step{failed, func(n *Candidate) { n.Applied, n.Restored = 9, true }}, "2"},
		"its attempt follows the desired revision": {[]step{applied, wants(3, Change{}),
			func(n *Candidate) { n.Assigned = 3 }}, "3 Ready"},
		"failed after the deadline": {[]step{unheard(hour), failed},
			"1 Bad, refuses 2, 1 failed changes"},
		"it goes on after the deadline": {
			[]step{unheard(minute), begun(-minute), ended(0), ready("False")}, "2 Unknown"},
		"it goes on for longer than the deadline": {
			[]step{unheard(minute), begun(0), ended(hour), ready("False")}, "2 Bad, 1 failed changes"},
		"it goes on again after hours": {
			[]step{unheard(minute), begun(-10 * hour), ended(11 * hour), ready("False")}, "2 Unknown"},
		"its owner takes it back": {[]step{wants(3, Change{})}, "3"},
	} {
		t.Run(name, func(t *testing.T) {
			n := runs("a", 2, wanted)
			n.take(append([]step{under(minute)}, tt.is...))
			before := *n.Attempt
			moves, _ := Admit(policyOf(RolloutPolicy{}), []Candidate{n}, nil, began)
			if len(moves) == 1 {
				n = moves[0]
			}
			got := fmt.Sprint(n.Assigned)
			if n.Attempt != nil && !n.Attempt.Ready.IsZero() {
				got += " Ready"
			}
			if n.Attempt != nil && n.Attempt.Outcome != "" {
				got += " " + n.Attempt.Outcome
				ends := n.Attempt.Outcome != before.Outcome
				expect(t, "its end is noted", !ends || n.Attempt.Ended.Equal(began), true)
			}
			if n.Refused != 0 {
				got += fmt.Sprintf(", refuses %d", n.Refused)
			}
			if failed := len(n.FailedChanges); failed > 0 {
				got += fmt.Sprintf(", %d failed changes", failed)
			}
			expect(t, "what became of it", got, tt.want)
		})
	}
}

// fleet is a simulated cluster, whose agents apply what they are offered.
type fleet struct {
	nodes  []*machine
	states []State
	now    time.Time
	policy Policy
	random *rand.Rand
	worst  int // the most nodes under a change at once
	// restless has machines be off, or not ask, at random.
	restless bool
}

// machine is one node of it.
type machine struct {
	Candidate
	config, wants string // versions of Kubernetes
	works         int    // rounds until its change is done
	// fails has it refuse every change, breaks become NotReady by a version, offline hear nothing.
	fails, offline bool
	breaks         string
	// off and busy are the rounds for which it is off, or does not ask before its next change.
	off, busy int
}

// begin makes the agent of a node ask, and begin if it may.
func (f *fleet) begin(m *machine) {
	n := Node{Revision: m.Desired, Assigned: m.Assigned, Failed: m.Refused, Attempt: m.Attempt,
		FailedChanges: m.FailedChanges}
	if m.Asks {
		n.Asks = m.Desired
	}
	n, answer := n.Begin(Beginning{Asked: m.Assigned, Applied: m.Applied, Change: m.Change,
		Lasts: 10 * time.Minute, Policy: f.policy, Rollout: Rollout{f.states}, Now: f.now})
	m.Attempt, m.Asks = n.Attempt, n.Asks != 0
	if answer.GrantedSeconds > 0 {
		m.works = 1 + f.random.IntN(9)
	}
}

// rest makes a machine without a change be off or busy, at random.
func (f *fleet) rest(m *machine) {
	m.off, m.busy = max(0, m.off-1), max(0, m.busy-1)
	switch random := f.random.IntN(30); {
	case m.off+m.busy > 0:
	case random == 0:
		m.off = f.random.IntN(60)
	case random == 1:
		m.busy = f.random.IntN(12)
	}
}

func newFleet(seed uint64, n int, policy Policy) *fleet {
	f := &fleet{now: began, policy: policy, random: rand.New(rand.NewPCG(seed, 1))}
	for i := range n {
		f.nodes = append(f.nodes, &machine{
			Candidate: runs(fmt.Sprintf("%05d", i), 1, Change{}), config: "1.34.4", wants: "1.34.4"})
	}
	return f
}

// put sets the desired version of a node.
func (m *machine) put(version string) {
	m.Desired++
	m.wants = version
}

// round simulates a minute.
func (f *fleet) round() {
	f.now = f.now.Add(time.Minute)
	var all []Candidate
	for _, m := range f.nodes {
		m.Change = Change{}
		if m.config != m.wants {
			m.Change = upgrade(m.wants)
		}
		all = append(all, m.Candidate)
	}
	moves, states := Admit(f.policy, all, f.states, f.now)
	f.states = states
	for _, mv := range moves {
		f.nodes[must(strconv.Atoi(strings.TrimPrefix(mv.Key, "c/")))].Candidate = mv
	}
	under := 0
	for _, m := range f.nodes {
		m.Heard = !m.offline && m.off == 0
		if m.Heard && m.works+m.busy == 0 && m.Assigned != m.Applied && m.Failed != m.Assigned {
			f.begin(m)
		}
		if m.works > 0 {
			under++
			f.work(m)
		} else if f.restless {
			f.rest(m)
		}
	}
	f.worst = max(f.worst, under)
}

// work continues the change of a node's agent.
func (f *fleet) work(m *machine) {
	if m.works--; m.works > 0 {
		return
	}
	if m.fails {
		m.Failed = m.Assigned
		return
	}
	m.Applied = m.Assigned
	if m.Assigned == m.Desired {
		m.config = m.wants
	}
	m.Ready = "True"
	if m.breaks == m.config {
		m.Ready = "False"
	}
}

// done reports whether every node that can has its desired version.
func (f *fleet) done() bool {
	for _, m := range f.nodes {
		if !m.fails && !m.offline && m.breaks != m.wants && m.Applied != m.Desired {
			return false
		}
	}
	return true
}

// TestAdmitFleets upgrades random fleets whose machines are off for hours or come to their change
// late: there are never more nodes than the budget away for a change, and all nodes that behave get
// it, whatever one broken machine and one careless owner do.
func TestAdmitFleets(t *testing.T) {
	sizes := []int{1, 2, 3, 5, 17, 100, 400}
	if !testing.Short() {
		sizes = append(sizes, 10_000)
	}
	for i, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			canaries := i % 3
			policy := policyOf(RolloutPolicy{MaxUnavailable: fmt.Sprintf("%d%%", 5+10*(i%3)),
				Canaries: &canaries, Soak: "PT3M", Deadline: "PT6M"})
			f := newFleet(uint64(n), n, policy)
			f.restless = true
			for _, m := range f.nodes {
				m.put("1.35.0")
			}
			if n > 4 {
				f.nodes[0].fails = true // it would be the first canary
				f.nodes[1].offline = true
			}
			fixes := 0
			for round := 0; !f.done(); round++ {
				if n > 4 && round%7 == 0 && round < 70 { // an owner whose every PUT is bad
					m := f.nodes[2]
					m.put(fmt.Sprintf("9.%d.0", round))
					m.breaks = m.wants
				}
				if n > 4 && f.held() && fixes < 5 { // the others' owner sends a fix
					fixes++
					for i, m := range f.nodes {
						if i != 2 {
							m.put(fmt.Sprintf("1.35.%d", fixes))
						}
					}
				}
				if f.round(); round > 40*n+400 {
					t.Fatalf("it does not end: %+v", f.states)
				}
			}
			if most := policy.MaxUnavailable.Of(n); f.worst > most || f.worst == 0 {
				t.Errorf("%d nodes under a change at once, of %d", f.worst, most)
			}
		})
	}
}

// held reports whether some change that nodes wait for is held.
func (f *fleet) held() bool {
	return slices.ContainsFunc(f.states, func(s State) bool { return s.Waiting > 1 && s.Hold != "" })
}

// TestAdmitBadVersion tests a version that silently breaks all nodes, or some. It reaches no more
// nodes than the canaries, or than the canaries, the allowed failures and the budget.
func TestAdmitBadVersion(t *testing.T) {
	for name, one := range map[string]struct{ every, most int }{
		"every node": {1, 1}, "one in twenty": {20, 1 + 1 + 10}, "one in three": {3, 1 + 1 + 10},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(7, 100, policyOf(RolloutPolicy{Soak: "PT3M"}))
			for i, m := range f.nodes {
				m.put("1.35.0")
				if i%one.every == 0 {
					m.breaks = "1.35.0"
				}
			}
			for range 500 {
				f.round()
			}
			broken := 0
			for _, m := range f.nodes {
				if m.config == "1.35.0" && m.Ready == "False" {
					broken++
				}
			}
			if broken > one.most || broken == 0 {
				t.Errorf("%d nodes are broken, at most %d may be: %+v", broken, one.most, f.states)
			}
		})
	}
}

func TestReadPolicy(t *testing.T) {
	p, problems := ReadPolicy(nil)
	shows(t, "the defaults", "1 2 2 1 1 10m0s 30m0s false 0", p.MaxUnavailable.Of(5),
		p.MaxUnavailable.Of(29), p.MaxUnknown.Of(10), p.Canaries, p.MaxFailed, p.Soak, p.Deadline,
		p.Paused, len(problems))
	_, problems = ReadPolicy(&RolloutPolicy{MaxUnavailable: "0", MaxUnknown: "101%",
		Canaries: new(-1), MaxFailed: new(-1), Soak: "10m", Deadline: "PT1S"})
	expect(t, "problems", len(problems), 6)
}

func TestAllow(t *testing.T) {
	r := Rollout{[]State{{Change: wanted, Failed: []string{"a", "b"}, More: 3}, {Change: other}}}
	next := must(r.Allow(api.AllowVersions{Change: wanted.ID, Failures: 2, For: "PT1H"}, "ops", began))
	s := next.Changes[0]
	shows(t, "what is allowed", fmt.Sprint("6 ops 5 ", began.Add(hour)), s.Allowed, s.By,
		next.Shown()[0].Failed, s.Until)
	expect(t, "who has allowed it before", r.Changes[0].By, "")
	for _, ask := range []api.AllowVersions{
		{Change: other.ID}, {Change: "x"}, {Failures: -1}, {For: "P8D"},
	} {
		_, err := r.Allow(ask, "ops", began)
		expect(t, fmt.Sprintf("%+v is allowed", ask), err == nil, false)
	}
}

// TestAllowUnknown tests that a change held for too many nodes without an answer can be released.
func TestAllowUnknown(t *testing.T) {
	a := admission{now: began, policy: Policy{MaxUnknown: Share{number: 1}}, counted: 9}
	r := Rollout{[]State{{Change: wanted, Unknown: 3, Waiting: 4, Proved: true}}}
	expect(t, "the hold", a.hold(&r.Changes[0]), HeldUnknown)
	next := must(r.Allow(api.AllowVersions{Failures: 2}, "ops", began))
	s := &next.Changes[0]
	for unknown, want := range map[int]string{3: "", 4: "", 5: HeldUnknown} {
		s.Unknown = unknown
		expect(t, fmt.Sprintf("held while %d nodes do not answer", unknown), a.hold(s), want)
	}
	s.Unknown, a.now = 3, s.Until
	expect(t, "after the allowance has ended", a.hold(s), HeldUnknown)
}

// TestLost tests which revisions and ETags the store has lost.
func TestLost(t *testing.T) {
	w := newWorld(t)
	d := asPrincipal(clientA, "a-secret")
	w.put(d)
	before := *w.node
	later := before
	later.Revision, later.Assigned = before.Revision+5, before.Revision+5
	shows(t, "what is lost if it runs the present one, none, a later one",
		fmt.Sprint(0, 0, later.Revision), before.Lost(before.Revision), before.Lost(0),
		before.Lost(later.Revision))
	other := later
	other.UID = "other-uid"
	shows(t, "which ETag is later", "true false false false false", before.IsLater(later.ETag()),
		before.IsLater(before.ETag()), later.IsLater(before.ETag()), before.IsLater(other.ETag()),
		before.IsLater("*"))
	// New facts do not release the node, a PUT does.
	w.moves("https://moved.example:6443", "1.35.4")
	refresh := func(runs int64, joins bool) (Node, *Revision) {
		return Refresh(*w.node, w.last(), w.parent, w.now.Add(hour), "v1", runs, joins)
	}
	n, r := refresh(later.Revision, false)
	shows(t, "after new facts", fmt.Sprint(true, later.Revision, before.Assigned, true, true),
		r != nil, n.Unreleased, n.Assigned, n.Lost(later.Revision) != 0, n.IsLater(later.ETag()))
	expect(t, "the reason", (Evidence{Node: n}).upToDate().Reason, "Restored")
	// Also if they came before the node reported what it runs, and are offered already.
	for _, joins := range []bool{false, true} {
		n, _ := refresh(before.Revision, joins)
		shows(t, fmt.Sprint("after new facts, offered ", joins),
			fmt.Sprint(later.Revision, 0, 0, true, false), n.Lost(later.Revision),
			n.Lost(before.Revision), n.Lost(n.Revision), n.IsLater(later.ETag()), n.IsLater(n.ETag()))
	}
	w.keep(n, r)
	w.runs, w.now = true, w.now.Add(2*hour)
	d.NodeConfig.MaxPods = 60
	w.put(d)
	shows(t, "after a PUT", "0 false", w.node.Lost(later.Revision), w.node.IsLater(later.ETag()))
}

// TestAdmitManyChanges tests that failed changes with waiting nodes are kept, with their times.
func TestAdmitManyChanges(t *testing.T) {
	var nodes []Candidate
	for i := range 2 * maxStates {
		nodes = append(nodes, runs(fmt.Sprintf("%02d", i), 2, upgrade(fmt.Sprintf("1.40.%d", i))))
	}
	nodes = append(nodes, runs("x", 2, wanted))
	before := []State{{Change: wanted, Since: began, Failed: []string{"gone"}}}
	p := policyOf(RolloutPolicy{})
	_, first := Admit(p, nodes, before, began)
	_, second := Admit(p, nodes, first, began.Add(minute))
	expect(t, "the states that are kept", second, first)
	shows(t, "their number, and the first", fmt.Sprint(maxStates, " ", wanted.ID), len(second),
		second[0].ID)
}

func TestJoins(t *testing.T) {
	follows := &Node{Desired: Desired{ContinuousMonitoring: true}}
	for name, tt := range map[string]struct {
		n          *Node
		applied    int64
		heard, url bool
		want       bool
	}{
		"it is made":                   {want: true},
		"it has never reported":        {n: follows, heard: true, want: true},
		"it runs and follows":          {n: follows, applied: 1, heard: true, url: true},
		"it is offline":                {n: follows, applied: 1},
		"another machine takes over":   {n: follows, applied: 1, url: true, want: true},
		"it does not follow":           {n: &Node{}, applied: 1, want: true},
		"it has followed until lately": {n: &Node{}, applied: 1, heard: true},
	} {
		expect(t, name, Joins(tt.n, tt.applied, tt.heard, tt.url), tt.want)
	}
}

// Admit's decision about a node that is Offered its desired revision does not depend on the change.
func TestOffered(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 1))
	version := func() int64 { return random.Int64N(4) }
	is := func() bool { return random.IntN(2) == 0 }
	policy, offered := policyOf(RolloutPolicy{}), 0
	for range 100_000 {
		c := Candidate{Key: "n", UID: "u", Desired: 1 + version(), Assigned: version(),
			Applied: version(), Failed: version(), Refused: version(), Follows: is(), Heard: is(),
			Open: is(), Insisted: is(), Kept: is(), ByHand: is(), Asks: is(), Restored: is(),
			Ready: []string{"", "True", "False", "Unknown"}[version()]}
		if is() {
			outcome := []string{"", Good, Bad, Unknown}[version()]
			c.Attempt = attempt(wanted, -minute, outcome)
		}
		if !c.Offered() {
			continue
		}
		offered++
		moves, states := Admit(policy, []Candidate{c}, nil, began)
		was := c
		c.Change, c.Kept, c.Open = upgrade("1.36.0"), !c.Kept, !c.Open
		moved, after := Admit(policy, []Candidate{c}, nil, began)
		for i := range moved {
			moved[i].Change, moved[i].Kept, moved[i].Open = was.Change, was.Kept, was.Open
		}
		if !reflect.DeepEqual(moves, moved) || !reflect.DeepEqual(states, after) {
			t.Fatalf("%+v: %+v and %+v, or %+v and %+v", c, moves, states, moved, after)
		}
	}
	if offered < 1000 {
		t.Errorf("only %d of them are offered what is wanted", offered)
	}
}
