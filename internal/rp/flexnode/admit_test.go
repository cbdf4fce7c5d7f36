package flexnode

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
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

func policyOf(t *testing.T, given RolloutPolicy) Policy {
	t.Helper()
	p, problems := ReadPolicy(&given)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return p
}

// admitted returns the nodes that a round moves to the desired revision, by name, in order.
func admitted(nodes []Candidate, moves []Candidate) string {
	var names []string
	for i, c := range nodes {
		for _, m := range moves {
			if m.Key == c.Key && m.Assigned == c.Desired && nodes[i].Assigned != m.Assigned {
				names = append(names, strings.TrimPrefix(c.Key, "c/"))
			}
		}
	}
	return strings.Join(names, " ")
}

// holding returns the nodes that hold a slot after a round, by name, in order.
func holding(nodes []Candidate, moves []Candidate) string {
	var names []string
	for _, c := range nodes {
		at := c.Attempt
		for _, m := range moves {
			if m.Key == c.Key {
				at = m.Attempt
			}
		}
		if at.holds() {
			names = append(names, strings.TrimPrefix(c.Key, "c/"))
		}
	}
	return strings.Join(names, " ")
}

func attempt(change Change, at time.Duration, outcome string) *Attempt {
	a := &Attempt{Change: change.ID, Revision: 2, At: began.Add(at), Outcome: outcome}
	a.Since = a.At
	if outcome == Good {
		a.Ready = a.At
	}
	return a
}

// TestAdmit tests one round in small clusters. Every case has nodes whose desired revision is 2.
func TestAdmit(t *testing.T) {
	c := upgrade("1.35.0")
	three, none, hundred := 3, 0, 100
	bad := func(n *Candidate) { n.Refused, n.Attempt = 2, attempt(c, -time.Minute, Bad) }
	good := func(n *Candidate) {
		n.Assigned, n.Applied, n.Attempt = 2, 2, attempt(c, -time.Hour, Good)
	}
	first101 := func(n []Candidate) {
		good(&n[0])
		for i := range 101 {
			bad(&n[1+i])
		}
	}
	for name, tt := range map[string]struct {
		nodes  int
		policy RolloutPolicy
		before []State
		edit   func(n []Candidate)
		want   string // names of the nodes that are moved to the desired revision
		slots  string // names of the nodes with a slot for it then, if they differ
		hold   string // of the change
	}{
		"one node":   {nodes: 1, want: "0"},
		"two nodes":  {nodes: 2, want: "0"},
		"five nodes": {nodes: 5, want: "0"},
		"five nodes, half of them at once, a canary first": {
			nodes: 5, policy: RolloutPolicy{MaxUnavailable: "50%"}, want: "0"},
		"half of them at once, three canaries": {nodes: 5,
			policy: RolloutPolicy{MaxUnavailable: "50%", Canaries: &three}, want: "0 1"},
		"all at once": {nodes: 3,
			policy: RolloutPolicy{MaxUnavailable: "100%", Canaries: &none}, want: "0 1 2"},
		"the canary is at it": {nodes: 3, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Attempt = 2, attempt(c, -time.Minute, "")
		}},
		"the canary soaks": {nodes: 3, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Applied, n[0].Attempt = 2, 2, attempt(c, -time.Minute, "")
			n[0].Attempt.Ready = began.Add(-time.Minute)
		}},
		"the canary has soaked": {nodes: 3, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Applied, n[0].Attempt = 2, 2, attempt(c, -20*time.Minute, "")
			n[0].Attempt.Ready = began.Add(-11 * time.Minute)
		}, want: "1"},
		"a node that is Ready after the canary gives its slot back": {nodes: 4,
			edit: func(n []Candidate) {
				good(&n[0])
				n[1].Assigned, n[1].Applied, n[1].Attempt = 2, 2, attempt(c, -time.Minute, "")
			}, want: "2"},
		"a node that was Ready after its change and is not any more has its slot": {nodes: 4,
			edit: func(n []Candidate) {
				good(&n[0])
				n[1].Assigned, n[1].Applied, n[1].Attempt = 2, 2, attempt(c, -5*time.Minute, "")
				n[1].Attempt.Ready, n[1].Ready = began.Add(-3*time.Minute), "Unknown"
			}},
		"its owner gives it another version": {nodes: 4, edit: func(n []Candidate) {
			good(&n[0])
			n[1].Assigned, n[1].Applied, n[1].Attempt = 2, 2, attempt(c, -5*time.Minute, "")
			n[1].Attempt.Ready, n[1].Ready = began.Add(-3*time.Minute), "Unknown"
			n[1].Desired, n[1].Change = 3, upgrade("1.35.1")
		}, want: "1"},
		"another change needs a canary of its own, and the budget is the cluster's": {nodes: 3,
			edit: func(n []Candidate) {
				n[0].Assigned, n[0].Attempt = 2, attempt(c, -time.Minute, "")
				n[1].Change = upgrade("1.36.0")
			}},
		"the canary has failed": {nodes: 3, edit: func(n []Candidate) {
			bad(&n[0])
		}, hold: HeldCanary},
		"the canary fails now, and goes back": {nodes: 3, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Failed, n[0].Attempt = 2, 2, attempt(c, -time.Minute, "")
		}, hold: HeldCanary},
		"the canary is not Ready while its agent is heard": {nodes: 3, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Applied, n[0].Attempt = 2, 2, attempt(c, -time.Minute, "")
			n[0].Attempt.Ready, n[0].Ready = began.Add(-time.Minute), "False"
		}, hold: HeldCanary},
		"the canary is given another version before it is Ready": {nodes: 4,
			policy: RolloutPolicy{MaxUnavailable: "50%"}, edit: func(n []Candidate) {
				n[0].Assigned, n[0].Applied, n[0].Attempt = 2, 2, attempt(c, -time.Minute, "")
				n[0].Desired, n[0].Ready, n[0].Change = 3, "Unknown", upgrade("1.35.1")
			}, want: "0", hold: HeldCanary},
		"the canary is given another label before it is Ready": {nodes: 4,
			policy: RolloutPolicy{MaxUnavailable: "50%"}, edit: func(n []Candidate) {
				n[0].Assigned, n[0].Applied, n[0].Attempt = 2, 2, attempt(c, -time.Minute, "")
				n[0].Desired, n[0].Ready, n[0].Change = 3, "Unknown", Change{}
			}, want: "0", slots: "0"},
		"the canary is given its former version while it is at it": {nodes: 4,
			policy: RolloutPolicy{MaxUnavailable: "50%"}, edit: func(n []Candidate) {
				n[0].Assigned, n[0].Attempt = 2, attempt(c, -time.Minute, "")
				n[0].Attempt.Until = began.Add(time.Minute)
				n[0].Desired, n[0].Change = 1, Change{}
			}, want: "0", slots: "0", hold: HeldCanary},
		"the canary is given another version before it begins": {nodes: 4,
			policy: RolloutPolicy{MaxUnavailable: "50%"}, edit: func(n []Candidate) {
				n[0].Assigned, n[0].Attempt = 2, attempt(c, -time.Minute, "")
				n[0].Desired, n[0].Change = 3, upgrade("1.35.1")
			}, want: "0 1"},
		"the canary has failed, which is allowed": {nodes: 3, edit: func(n []Candidate) {
			bad(&n[0])
		}, before: []State{{Change: c, Allowed: 1, Until: began.Add(time.Hour)}}, want: "1"},
		"the canary has failed, which was allowed": {nodes: 3, edit: func(n []Candidate) {
			bad(&n[0])
		}, before: []State{{Change: c, Allowed: 1, Until: began.Add(-time.Hour)}}, hold: HeldCanary},
		"a node that wants something else now has failed it": {nodes: 3,
			before: []State{{Change: c, Failed: []string{"uid-gone"}}}, hold: HeldCanary},
		"one more has failed after a good canary": {nodes: 4, edit: func(n []Candidate) {
			good(&n[0])
			bad(&n[1])
		}, want: "2"},
		"two more have failed after a good canary": {nodes: 4, edit: func(n []Candidate) {
			good(&n[0])
			bad(&n[1])
			bad(&n[2])
		}, hold: HeldFailed},
		"more have failed than are kept": {nodes: 160,
			policy: RolloutPolicy{MaxFailed: &hundred}, edit: first101, hold: HeldFailed},
		"more are allowed than are kept": {nodes: 160, policy: RolloutPolicy{MaxUnavailable: "1"},
			before: []State{{Change: c, Allowed: 101, Until: began.Add(time.Hour)}},
			edit:   first101, want: "102"},
		"two more, for which one identity reports": {nodes: 4, edit: func(n []Candidate) {
			good(&n[0])
			bad(&n[1])
			bad(&n[2])
			n[1].Speaker, n[2].Speaker = "app:t/shared", "app:t/shared"
		}, want: "3"},
		"they want another version since": {nodes: 4, edit: func(n []Candidate) {
			good(&n[0])
			for i := range n[1:3] {
				n[1+i].Speaker, n[1+i].Desired = "app:t/shared", 3
				n[1+i].Change = upgrade("1.36.0")
			}
		}, before: []State{{Change: c, Failed: []string{"uid-1", "uid-2"}}}, want: "3"},
		"one that was left out does not count": {nodes: 3, edit: func(n []Candidate) {
			bad(&n[0])
			n[0].FailedChanges = []string{"a", "b", c.ID}
		}, want: "1"},
		"one that has failed before is no canary": {nodes: 3, edit: func(n []Candidate) {
			n[0].FailedChanges = []string{"a"}
		}, want: "1"},
		"one that has failed three changes is left out": {nodes: 1, edit: func(n []Candidate) {
			n[0].FailedChanges = []string{"a", "b", "c"}
		}},
		"unless a person insists": {nodes: 1, edit: func(n []Candidate) {
			n[0].FailedChanges, n[0].Insisted = []string{"a", "b", "c"}, true
		}, want: "0"},
		"a person insists on what others have failed": {nodes: 2, edit: func(n []Candidate) {
			bad(&n[0])
			n[1].Insisted = true
		}, want: "1", hold: HeldCanary},
		"no answer by the deadline": {nodes: 3, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Heard, n[0].Attempt = 2, false, attempt(c, -31*time.Minute, "")
		}, want: "1"},
		"too many give no answer": {nodes: 4, edit: func(n []Candidate) {
			for i := range 2 {
				n[i].Assigned, n[i].Heard, n[i].Attempt = 2, false, attempt(c, -time.Hour, Unknown)
			}
		}, hold: HeldUnknown},
		"a node that is not Ready is no canary": {nodes: 2, edit: func(n []Candidate) {
			n[0].Ready = "False"
		}, want: "1"},
		"proved once, the canary wants something else": {nodes: 2,
			before: []State{{Change: c, Proved: true, Failed: []string{"uid-gone"}}}, want: "0"},
		"one that was left out is gone": {nodes: 2, edit: func(n []Candidate) {
			n[0].FailedChanges = []string{"a", "b", c.ID}
		}, before: []State{{Change: c, Failed: []string{"uid-0"}}}, want: "1"},
		"a node without a slot is at it still": {nodes: 2, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Ready = 2, "False"
			n[0].Attempt = attempt(c, -time.Hour, Unknown)
			n[0].Attempt.Until, n[0].Attempt.Ended = began.Add(-time.Minute), began.Add(-time.Minute)
		}},
		"but not for ever": {nodes: 2, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Ready = 2, "False"
			n[0].Attempt = attempt(c, -time.Hour, Unknown)
			n[0].Attempt.Until, n[0].Attempt.Ended = began, began.Add(-time.Minute)
			n[1].Change = upgrade("1.35.1")
		}, want: "1", hold: HeldCanary},
		"one that has not begun is not at it": {nodes: 2, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Ready = 2, "False"
			n[0].Attempt = attempt(c, -time.Hour, Unknown)
		}, want: "1"},
		"nor one that asks again": {nodes: 2, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Ready, n[0].Asks = 2, "False", true
			n[0].Attempt = attempt(c, -time.Hour, Unknown)
		}, want: "1"},
		"a node that has begun keeps its slot until it is done": {nodes: 2, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Attempt = 2, attempt(c, -time.Hour, "")
			n[0].Attempt.Until = began.Add(time.Minute)
		}},
		"and not for longer": {nodes: 2, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Attempt = 2, attempt(c, -time.Hour, "")
			n[0].Attempt.Until = began
		}, want: "1"},
		"a node that asks gets a slot again": {nodes: 1, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Asks, n[0].Attempt = 2, true, attempt(c, -time.Hour, Unknown)
		}, slots: "0"},
		"one that does not ask has none": {nodes: 1, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Attempt = 2, attempt(c, -time.Hour, Unknown)
		}},
		"one that asks waits for the budget": {nodes: 2, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Asks = 2, true
			n[1].Assigned, n[1].Attempt = 2, attempt(c, -time.Minute, "")
		}, slots: "1"},
		"one that has had its slot comes last": {nodes: 2, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Asks, n[0].Attempt = 2, true, attempt(c, -time.Hour, Unknown)
			n[0].Attempt.Ended = began.Add(-time.Minute)
		}, want: "1"},
		"those that ask are heard, and unknown no more": {nodes: 4, edit: func(n []Candidate) {
			for i := range 2 {
				n[i].Assigned, n[i].Asks, n[i].Attempt = 2, true, attempt(c, -time.Hour, Unknown)
			}
		}, slots: "0"},
		"its address has changed while it was at it": {nodes: 1, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Desired, n[0].Same = 2, 3, true
			n[0].Attempt = attempt(c, -time.Hour, Unknown)
		}, want: "0"},
		"offline, outside its window": {nodes: 3, edit: func(n []Candidate) {
			n[0].Heard, n[1].Open = false, false
		}, want: "2"},
		"the store was restored, and knows not what they run": {nodes: 2, edit: func(n []Candidate) {
			n[0].Applied, n[0].Restored, n[1].Restored, n[1].Change = 9, true, true, Change{}
		}},
		"their configurations cannot be read": {nodes: 3, edit: func(n []Candidate) {
			for i := range 2 {
				n[i].Assigned, n[i].Desired, n[i].Change = 2, 3, Change{ID: Unreadable}
				n[i].Attempt, n[i].Follows = attempt(c, -time.Minute, ""), i == 0
				n[i].Attempt.Until = began.Add(time.Minute)
			}
		}, slots: "0 1"},
		"paused": {nodes: 2, policy: RolloutPolicy{Paused: true}, hold: HeldPaused},
		"it joins": {nodes: 2, edit: func(n []Candidate) {
			n[0].Applied, n[1].Applied = 0, 0
		}, want: "0 1"},
		"no node follows": {nodes: 2, edit: func(n []Candidate) {
			n[0].Follows, n[1].Follows = false, false
		}, want: "0 1"},
		"neither restarts nor drains, paused": {nodes: 2, policy: RolloutPolicy{Paused: true},
			edit: func(n []Candidate) { n[0].Change, n[1].Change = Change{}, Change{} }, want: "0 1"},
		"it runs it already": {nodes: 1, edit: func(n []Candidate) { n[0].Applied = 2 }, want: "0"},
		"a node with a slot takes its newest revision in it": {nodes: 2, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Desired, n[0].Change = 2, 3, upgrade("1.35.1")
			n[0].Attempt = attempt(c, -time.Minute, "")
		}, want: "0"},
		"but not for longer than its deadline": {nodes: 1, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Desired, n[0].Change = 2, 3, upgrade("1.35.1")
			n[0].Attempt = attempt(c, -time.Minute, "")
			n[0].Attempt.Since = began.Add(-31 * time.Minute)
		}},
		"not one that others have failed": {nodes: 2, edit: func(n []Candidate) {
			n[0].Assigned, n[0].Desired = 2, 3
			n[0].Attempt = attempt(upgrade("1.35.1"), -time.Minute, "")
		}, before: []State{{Change: c, Failed: []string{"uid-gone"}}}, hold: HeldCanary},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []Candidate // which all want revision 2
			for i := range tt.nodes {
				nodes = append(nodes, runs(fmt.Sprint(i), 2, c))
			}
			if tt.edit != nil {
				tt.edit(nodes)
			}
			moves, states := Admit(policyOf(t, tt.policy), nodes, tt.before, began)
			expect(t, fmt.Sprintf("admitted with %+v", states), admitted(nodes, moves), tt.want)
			if tt.slots != "" {
				expect(t, "those that have a slot", holding(nodes, moves), tt.slots)
			}
			hold := ""
			for _, s := range states {
				if s.ID == c.ID {
					hold = s.Hold
				}
			}
			expect(t, "why it is held", hold, tt.hold)
		})
	}
}

// TestAdmitJudges tests the outcomes of a change of one node.
func TestAdmitJudges(t *testing.T) {
	c := upgrade("1.35.0")
	for name, tt := range map[string]struct {
		edit                 func(n *Candidate)
		outcome              string
		assigned, refused    int64
		failedBefore, failed int // changes
		ready                bool
	}{
		"at work":   {assigned: 2},
		"not Ready": {edit: func(n *Candidate) { n.Ready = "False" }, assigned: 2},
		"applied":   {edit: func(n *Candidate) { n.Applied = 2 }, assigned: 2, ready: true},
		"applied, and not Ready yet": {
			edit: func(n *Candidate) { n.Applied, n.Ready = 2, "False" }, assigned: 2},
		"applied, soaked, and not heard": {edit: func(n *Candidate) {
			n.Applied, n.Heard = 2, false
			n.Attempt.Ready = began.Add(-11 * time.Minute)
		}, assigned: 2, ready: true},
		"applied, and not heard for longer": {edit: func(n *Candidate) {
			n.Applied, n.Heard = 2, false
			n.Attempt.Ready = began.Add(-41 * time.Minute)
		}, assigned: 2, ready: true, outcome: Unknown},
		"good": {edit: func(n *Candidate) {
			n.Applied, n.Attempt.Ready = 2, began.Add(-10*time.Minute)
		}, failedBefore: 2, assigned: 2, outcome: Good, ready: true},
		"failed": {edit: func(n *Candidate) { n.Failed = 2 }, failedBefore: 1, failed: 2,
			outcome: Bad, assigned: 1, refused: 2},
		"failed, and what it ran is not kept": {edit: func(n *Candidate) { n.Failed, n.Kept = 2, false },
			failed: 1, outcome: Bad, assigned: 2, refused: 2},
		"rolled back by hand": {edit: func(n *Candidate) { n.Failed, n.ByHand = 2, true },
			assigned: 1, refused: 2},
		"not Ready at the deadline": {edit: func(n *Candidate) {
			n.Ready, n.Attempt.At = "False", began.Add(-30*time.Minute)
			n.Attempt.Until = began
		}, outcome: Bad, failed: 1, assigned: 2},
		"not Ready at the deadline, and not begun": {edit: func(n *Candidate) {
			n.Ready, n.Attempt.At = "False", began.Add(-30*time.Minute)
		}, outcome: Unknown, assigned: 2},
		"begun, and not done at the deadline": {edit: func(n *Candidate) {
			n.Ready, n.Attempt.At = "False", began.Add(-30*time.Minute)
			n.Attempt.Until = began.Add(time.Minute)
		}, assigned: 2},
		"still at work at the deadline": {edit: func(n *Candidate) {
			n.Attempt.At = began.Add(-30 * time.Minute)
		}, outcome: Unknown, assigned: 2},
		"Ready after the deadline": {edit: func(n *Candidate) {
			n.Attempt.At, n.Attempt.Outcome, n.Applied = began.Add(-time.Hour), Unknown, 2
		}, outcome: Unknown, assigned: 2, ready: true},
		"good after the deadline": {edit: func(n *Candidate) {
			n.Attempt.At, n.Attempt.Outcome, n.Applied = began.Add(-time.Hour), Unknown, 2
			n.Attempt.Ready = began.Add(-10 * time.Minute)
		}, outcome: Good, assigned: 2},
		"applied after the deadline, and not Ready": {edit: func(n *Candidate) {
			n.Attempt.At, n.Attempt.Outcome, n.Applied = began.Add(-time.Hour), Unknown, 2
			n.Ready = "False"
		}, outcome: Bad, failed: 1, assigned: 2},
		"the store was restored": {edit: func(n *Candidate) {
			n.Failed, n.Applied, n.Restored = 2, 9, true
		}, assigned: 2},
		"its attempt follows the desired revision": {edit: func(n *Candidate) {
			n.Desired, n.Assigned, n.Applied, n.Change = 3, 3, 2, Change{}
		}, assigned: 3, ready: true},
		"failed after the deadline": {edit: func(n *Candidate) {
			n.Attempt.At, n.Attempt.Outcome, n.Failed = began.Add(-time.Hour), Unknown, 2
		}, outcome: Bad, assigned: 1, refused: 2, failed: 1},
		"it goes on after the deadline": {edit: func(n *Candidate) {
			n.Attempt.Outcome, n.Attempt.Ended, n.Ready = Unknown, began, "False"
			n.Attempt.Until = began.Add(-time.Minute)
		}, outcome: Unknown, assigned: 2},
		"it goes on for longer than the deadline": {edit: func(n *Candidate) {
			n.Attempt.Outcome, n.Attempt.Ended, n.Ready = Unknown, began.Add(-time.Hour), "False"
			n.Attempt.Until = began
		}, outcome: Bad, failed: 1, assigned: 2},
		"it goes on again after hours": {edit: func(n *Candidate) {
			n.Attempt.Outcome, n.Attempt.Ended, n.Ready = Unknown, began.Add(-11*time.Hour), "False"
			n.Attempt.Until = began.Add(-10 * time.Hour)
		}, outcome: Unknown, assigned: 2},
		"its owner takes it back": {edit: func(n *Candidate) { n.Desired, n.Change = 3, Change{} },
			assigned: 3},
	} {
		t.Run(name, func(t *testing.T) {
			n := runs("a", 2, c)
			n.Assigned, n.Attempt = 2, attempt(c, -time.Minute, "")
			for i := range tt.failedBefore {
				n.FailedChanges = append(n.FailedChanges, fmt.Sprint(i))
			}
			if tt.edit != nil {
				tt.edit(&n)
			}
			got := n
			moves, _ := Admit(policyOf(t, RolloutPolicy{}), []Candidate{n}, nil, began)
			if len(moves) == 1 {
				got.Assigned, got.Refused = moves[0].Assigned, moves[0].Refused
				got.Attempt, got.FailedChanges = moves[0].Attempt, moves[0].FailedChanges
			}
			outcome, ready := "", false
			if got.Attempt != nil {
				outcome, ready = got.Attempt.Outcome, !got.Attempt.Ready.IsZero()
			}
			if outcome != tt.outcome || got.Assigned != tt.assigned || got.Refused != tt.refused ||
				len(got.FailedChanges) != tt.failed || ready != tt.ready && tt.outcome == "" {
				t.Errorf("%+v, attempt %+v", got, got.Attempt)
			}
		})
	}
}

// fleet is a simulated cluster, whose agents apply what they are offered.
type fleet struct {
	nodes  map[string]*machine
	states []State
	now    time.Time
	policy Policy
	random *rand.Rand
	// worst is the most nodes under a change at once, tried the nodes that have begun one.
	worst int
	tried map[string]map[string]bool // by change
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

func (m *machine) hears() bool { return !m.offline && m.off == 0 }

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
	f := &fleet{nodes: map[string]*machine{}, now: began, policy: policy,
		random: rand.New(rand.NewPCG(seed, 1)), tried: map[string]map[string]bool{}}
	for i := range n {
		name := fmt.Sprintf("%05d", i)
		m := &machine{Candidate: runs(name, 1, Change{}), config: "1.34.4", wants: "1.34.4"}
		f.nodes[m.Key] = m
	}
	return f
}

// put sets the desired version of a node.
func (f *fleet) put(m *machine, version string) {
	m.Desired++
	m.wants = version
}

// round simulates a minute.
func (f *fleet) round() {
	f.now = f.now.Add(time.Minute)
	var all []Candidate
	for _, key := range slices.Sorted(maps.Keys(f.nodes)) {
		m := f.nodes[key]
		m.Change = Change{}
		if m.config != m.wants {
			m.Change = upgrade(m.wants)
		}
		all = append(all, m.Candidate)
	}
	moves, states := Admit(f.policy, all, f.states, f.now)
	f.states = states
	for _, mv := range moves {
		m := f.nodes[mv.Key]
		if mv.Assigned == m.Desired && m.Assigned != mv.Assigned && m.Change.ID != "" {
			if f.tried[m.wants] == nil {
				f.tried[m.wants] = map[string]bool{}
			}
			f.tried[m.wants][m.Key] = true
		}
		m.Assigned, m.Refused = mv.Assigned, mv.Refused
		m.Attempt, m.FailedChanges = mv.Attempt, mv.FailedChanges
	}
	under := 0
	for _, key := range slices.Sorted(maps.Keys(f.nodes)) {
		m := f.nodes[key]
		if m.Heard = m.hears(); m.Heard && m.works == 0 && m.busy == 0 && m.Assigned != m.Applied &&
			m.Failed != m.Assigned {
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
			policy := policyOf(t, RolloutPolicy{MaxUnavailable: fmt.Sprintf("%d%%", 5+10*(i%3)),
				Canaries: &canaries, Soak: "PT3M", Deadline: "PT6M"})
			f := newFleet(uint64(n), n, policy)
			f.restless = true
			keys := slices.Sorted(maps.Keys(f.nodes))
			for _, key := range keys {
				f.put(f.nodes[key], "1.35.0")
			}
			if n > 4 {
				f.nodes[keys[0]].fails = true // it would be the first canary
				f.nodes[keys[1]].offline = true
			}
			fixes := 0
			for round := 0; !f.done(); round++ {
				if n > 4 && round%7 == 0 && round < 70 { // an owner whose every PUT is bad
					m := f.nodes[keys[2]]
					f.put(m, fmt.Sprintf("9.%d.0", round))
					m.breaks = m.wants
				}
				if n > 4 && f.held() && fixes < 5 { // the others' owner sends a fix
					fixes++
					for _, key := range keys {
						if key != keys[2] {
							f.put(f.nodes[key], fmt.Sprintf("1.35.%d", fixes))
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
			f := newFleet(7, 100, policyOf(t, RolloutPolicy{Soak: "PT3M"}))
			i := 0
			for _, key := range slices.Sorted(maps.Keys(f.nodes)) {
				f.put(f.nodes[key], "1.35.0")
				if i%one.every == 0 {
					f.nodes[key].breaks = "1.35.0"
				}
				i++
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
	if len(problems) > 0 || p.MaxUnavailable.Of(5) != 1 || p.MaxUnavailable.Of(29) != 2 ||
		p.MaxUnknown.Of(10) != 2 || p.Canaries != 1 || p.MaxFailed != 1 ||
		p.Soak != 10*time.Minute || p.Deadline != 30*time.Minute || p.Paused {
		t.Errorf("the defaults are %+v, %v", p, problems)
	}
	less := -1
	_, problems = ReadPolicy(&RolloutPolicy{
		MaxUnavailable: "0", MaxUnknown: "101%", Canaries: &less, MaxFailed: &less, Soak: "10m",
		Deadline: "PT1S",
	})
	expect(t, "problems", len(problems), 6)
}

func TestAllow(t *testing.T) {
	c := upgrade("1.35.0")
	r := Rollout{[]State{
		{Change: c, Failed: []string{"a", "b"}, More: 3}, {Change: upgrade("1.36.0")}}}
	next, err := r.Allow(api.AllowVersions{Change: c.ID, Failures: 2, For: "PT1H"}, "ops", began)
	if err != nil || next.Changes[0].Allowed != 6 || next.Changes[0].By != "ops" ||
		next.Shown()[0].Failed != 5 || r.Changes[0].By != "" ||
		!next.Changes[0].Until.Equal(began.Add(time.Hour)) {
		t.Errorf("%+v, %v", next, err)
	}
	for _, ask := range []api.AllowVersions{
		{Change: upgrade("1.36.0").ID}, {Change: "x"}, {Failures: -1}, {For: "P8D"},
	} {
		if _, err := r.Allow(ask, "ops", began); err == nil {
			t.Errorf("%+v is allowed", ask)
		}
	}
}

// TestAllowUnknown tests that a change held for too many nodes without an answer can be released.
func TestAllowUnknown(t *testing.T) {
	a := admission{now: began, policy: Policy{MaxUnknown: Share{number: 1}}, counted: 9}
	r := Rollout{[]State{{Change: upgrade("1.35.0"), Unknown: 3, Waiting: 4, Proved: true}}}
	expect(t, "the hold", a.hold(&r.Changes[0]), HeldUnknown)
	next := must(r.Allow(api.AllowVersions{Failures: 2}, "ops", began))
	s := &next.Changes[0]
	for unknown, want := range map[int]string{3: "", 4: "", 5: HeldUnknown} {
		if s.Unknown = unknown; a.hold(s) != want {
			t.Errorf("%d nodes do not answer: held by %q", unknown, a.hold(s))
		}
	}
	s.Unknown, a.now = 3, s.Until
	expect(t, "after the allowance has ended", a.hold(s), HeldUnknown)
}

// TestLost tests which revisions and ETags the store has lost.
func TestLost(t *testing.T) {
	w := newWorld(t)
	w.put(Desired{ContinuousMonitoring: true, AzureAuth: typical().AzureAuth})
	before := *w.node
	later := before
	later.Revision, later.Assigned = before.Revision+5, before.Revision+5
	if before.Lost(before.Revision) != 0 || before.Lost(0) != 0 ||
		before.Lost(later.Revision) != later.Revision {
		t.Error("which revision is lost")
	}
	other := later
	other.UID = "other-uid"
	if !before.IsLater(later.ETag()) || before.IsLater(before.ETag()) ||
		later.IsLater(before.ETag()) || before.IsLater(other.ETag()) || before.IsLater("*") {
		t.Error("which ETag is later")
	}
	// New facts do not release the node, a PUT does.
	f := someFacts()
	f.ServerURL = "https://moved.example:6443"
	w.reach(f, "1.35.4")
	n, r := Refresh(*w.node, w.last(), w.parent, w.now.Add(time.Hour), "v1", later.Revision, false)
	if r == nil || n.Unreleased != later.Revision || n.Assigned != before.Assigned ||
		n.Lost(later.Revision) == 0 || !n.IsLater(later.ETag()) {
		t.Errorf("after new facts: %+v", n)
	}
	expect(t, "the reason", (Evidence{Node: n}).upToDate().Reason, "Restored")
	// Also if they came before the node reported what it runs, and are offered already.
	for _, joins := range []bool{false, true} {
		n, _ := Refresh(*w.node, w.last(), w.parent, w.now.Add(time.Hour), "v1", before.Revision, joins)
		if n.Lost(later.Revision) != later.Revision || !n.IsLater(later.ETag()) ||
			n.Lost(before.Revision) != 0 || n.Lost(n.Revision) != 0 || n.IsLater(n.ETag()) {
			t.Errorf("after new facts, offered %v: %+v", joins, n)
		}
	}
	w.keep(n, r)
	w.runs, w.now = true, w.now.Add(2*time.Hour)
	w.put(Desired{ContinuousMonitoring: true, AzureAuth: typical().AzureAuth,
		NodeConfig: NodeConfig{MaxPods: 60}})
	if n := *w.node; n.Lost(later.Revision) != 0 || n.IsLater(later.ETag()) {
		t.Errorf("after a PUT: %+v", n)
	}
}

// TestAdmitManyChanges tests that failed changes with waiting nodes are kept, with their times.
func TestAdmitManyChanges(t *testing.T) {
	var nodes []Candidate
	for i := range 2 * maxStates {
		nodes = append(nodes, runs(fmt.Sprintf("%02d", i), 2, upgrade(fmt.Sprintf("1.40.%d", i))))
	}
	nodes = append(nodes, runs("x", 2, upgrade("1.35.0")))
	before := []State{{Change: upgrade("1.35.0"), Since: began, Failed: []string{"gone"}}}
	p := policyOf(t, RolloutPolicy{})
	_, first := Admit(p, nodes, before, began)
	_, second := Admit(p, nodes, first, began.Add(time.Minute))
	if len(second) != maxStates || second[0].ID != upgrade("1.35.0").ID {
		t.Errorf("%d states, the first of %v", len(second), second[0])
	}
	for i := range first {
		if first[i].ID != second[i].ID || !first[i].Since.Equal(second[i].Since) {
			t.Errorf("state %d was %v, and is %v", i, first[i], second[i])
		}
	}
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
	policy, offered := policyOf(t, RolloutPolicy{}), 0
	for range 100_000 {
		c := Candidate{Key: "n", UID: "u", Desired: 1 + version(), Assigned: version(),
			Applied: version(), Failed: version(), Refused: version(), Follows: is(), Heard: is(),
			Open: is(), Insisted: is(), Kept: is(), ByHand: is(), Asks: is(), Restored: is(),
			Ready: []string{"", "True", "False", "Unknown"}[version()]}
		if is() {
			outcome := []string{"", Good, Bad, Unknown}[version()]
			c.Attempt = attempt(upgrade("1.35.0"), -time.Minute, outcome)
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
