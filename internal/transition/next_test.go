package transition

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The table holds every situation that has a decision of its own, with what comes next.
func TestNext(t *testing.T) {
	record := func(k Kind, p Phase, change ...func(*Transition)) *Transition {
		r := &Transition{Kind: k, Phase: p, From: "a", To: "b"}
		for _, c := range change {
			c(r)
		}
		return r
	}
	touched := func(r *Transition) { r.Touched = true }
	cordoned := func(r *Transition) { r.Cordoned = true }
	byHand := func(r *Transition) { r.ByHand = true }
	same := func(r *Transition) { r.To = r.From }
	ungated := func(r *Transition) { r.To, r.Ungated = "a", true }
	begin := func(k Kind, to string) Decision { return Decision{Move: Begin, Kind: k, To: to} }
	rest, goOn := Decision{Move: Rest}, Decision{Move: Continue}
	revert, halt := Decision{Move: Revert}, Decision{Move: Halt}
	inherit := func(d Decision, change ...func(*Decision)) Decision {
		for _, c := range change {
			c(&d)
		}
		return d
	}
	isTouched := func(d *Decision) { d.Touched = true }
	isCordoned := func(d *Decision) { d.Cordoned = true }
	asks := begin(Change, "")
	asks.Asks = true
	follows := func(k Kind) func(*Decision) { return func(d *Decision) { d.Follows = k } }

	for _, tt := range []struct {
		name string
		s    Situation
		want Decision
	}{
		// a node that follows its provider
		{"a followed document", Situation{Applied: "a", Wanted: New, Followed: true}, asks},
		{"a followed document, and a person asks",
			Situation{Applied: "a", Wanted: New, Followed: true, Asked: true}, begin(Change, "")},
		{"a followed document for a machine that is not a node",
			Situation{Wanted: New, Followed: true}, begin(Join, "")},
		{"a followed document outside the window",
			Situation{Applied: "a", Wanted: New, Followed: true, Waits: true}, rest},
		{"the API server of a node that follows moves",
			Situation{Applied: "a", Wanted: Current, Followed: true, Moved: true}, begin(Change, "a")},
		{"a followed document during a change that has cordoned",
			Situation{Record: record(Change, Drain, cordoned), Applied: "a", Wanted: New, Followed: true},
			inherit(asks, isCordoned, follows(Change))},
		{"a followed document during a change that has touched the machine",
			Situation{Record: record(Change, Gate, touched), Applied: "a", Wanted: New, Followed: true},
			inherit(begin(Change, ""), isTouched, follows(Change))},
		{"a followed document after a rollback",
			Situation{Record: record(Rollback, Gate), Applied: "a", Wanted: New, Followed: true},
			inherit(asks, follows(Rollback))},
		{"a rollback of a node that follows",
			Situation{Record: record(Rollback, Restore), Applied: "a", Wanted: Rejected, Followed: true},
			goOn},
		{"a repair of a node that follows",
			Situation{Record: record(Change, Prefetch), Applied: "a", Wanted: Current, Followed: true},
			inherit(begin(Repair, "a"), follows(Change))},
		{"a change that has begun",
			Situation{Record: record(Change, Cordon), Leads: true, Applied: "a", Wanted: New,
				Followed: true}, goOn},
		{"a machine of a provider is given back",
			Situation{Record: record(Leave, Drain), Applied: "a", Wanted: New, Followed: true}, goOn},
		// nothing is under way
		{"a machine that is not a node joins", Situation{Wanted: New}, begin(Join, "")},
		{"a person asks for a join", Situation{Wanted: New, Asked: true}, begin(Join, "")},
		{"a join does not wait for the window", Situation{Wanted: New, Waits: true},
			begin(Join, "")},
		{"a join without a configuration", Situation{Wanted: Unreadable}, rest},
		{"a node is as configured", Situation{Applied: "a", Wanted: Current}, rest},
		{"a person asks for what is applied", Situation{Applied: "a", Wanted: Current, Asked: true},
			begin(Repair, "a")},
		{"a new document", Situation{Applied: "a", Wanted: New}, begin(Change, "")},
		{"a new document and a moved API server", Situation{Applied: "a", Wanted: New, Moved: true},
			begin(Change, "")},
		{"a new document outside the window", Situation{Applied: "a", Wanted: New, Waits: true},
			rest},
		{"the API server moves outside the window",
			Situation{Applied: "a", Wanted: New, Waits: true, Moved: true}, begin(Change, "a")},
		{"a rejected document", Situation{Applied: "a", Wanted: Rejected}, rest},
		{"an unreadable document", Situation{Applied: "a", Wanted: Unreadable}, rest},
		{"the API server moves", Situation{Applied: "a", Wanted: Current, Moved: true},
			begin(Change, "a")},
		{"the API server moves, and a person asks",
			Situation{Applied: "a", Wanted: Current, Moved: true, Asked: true}, begin(Change, "a")},
		{"the API server moves while a document is rejected",
			Situation{Applied: "a", Wanted: Rejected, Moved: true}, begin(Change, "a")},
		{"the API server moves while the document is unreadable",
			Situation{Applied: "a", Wanted: Unreadable, Moved: true}, begin(Change, "a")},

		// leaving, and what this version does not know
		{"a machine that is being given back", Situation{Record: record(Leave, Undo), Applied: "a",
			Wanted: New}, goOn},
		{"a machine that is being given back, without a configuration",
			Situation{Record: record(Leave, Drain), Wanted: Unreadable}, goOn},
		{"a person asks for a node while the machine is being given back",
			Situation{Record: record(Leave, Undo), Applied: "a", Wanted: New, Asked: true},
			inherit(begin(Change, ""), isTouched)},
		{"a person asks for the same node while the machine is being given back",
			Situation{Record: record(Leave, Undo), Applied: "a", Wanted: Current, Asked: true},
			inherit(begin(Repair, "a"), isTouched)},
		{"a person asks for a node after the last step of giving back",
			Situation{Record: record(Leave, Erase), Wanted: New, Asked: true},
			inherit(begin(Join, ""), isTouched)},
		{"a kind of a newer version", Situation{Record: record("reboot", "x"), Applied: "a",
			Wanted: Current}, halt},
		{"a kind of a newer version, and a new document",
			Situation{Record: record("reboot", "x"), Applied: "a", Wanted: New}, halt},

		// a rollback
		{"a rollback restores, the document is the one that failed",
			Situation{Record: record(Rollback, Restore), Applied: "a", Wanted: Rejected}, goOn},
		{"a rollback restores, and there is a new document",
			Situation{Record: record(Rollback, Restore), Applied: "a", Wanted: New},
			Decision{Move: Continue, Until: Gate}},
		{"a rollback that has not begun, and a new document",
			Situation{Record: record(Rollback, ""), Applied: "a", Wanted: New},
			Decision{Move: Continue, Until: Gate}},
		{"a rollback that cannot be proved, and a new document",
			Situation{Record: record(Rollback, Gate), Applied: "a", Wanted: New}, begin(Change, "")},
		{"a rollback that cannot be proved has cordoned the Node",
			Situation{Record: record(Rollback, Gate, cordoned), Applied: "a", Wanted: New},
			inherit(begin(Change, ""), isCordoned)},
		{"a rollback is being committed, and a new document",
			Situation{Record: record(Rollback, Commit), Applied: "a", Wanted: New},
			begin(Change, "")},
		{"a rollback that cannot be proved, outside the window",
			Situation{Record: record(Rollback, Gate), Applied: "a", Wanted: New, Waits: true}, goOn},
		{"a rollback that cannot be proved, the document is the one that failed",
			Situation{Record: record(Rollback, Gate), Applied: "a", Wanted: Rejected}, goOn},
		{"a rollback that cannot be proved, the document is the applied one",
			Situation{Record: record(Rollback, Gate), Applied: "a", Wanted: Current}, goOn},
		{"a rollback that cannot be proved, the document is unreadable",
			Situation{Record: record(Rollback, Gate), Applied: "a", Wanted: Unreadable}, goOn},
		{"a rollback by hand", Situation{Record: record(Change, Gate, byHand), Applied: "a",
			Wanted: New}, goOn},
		{"a rollback by hand whose generation was rejected",
			Situation{Record: record(Change, Gate, byHand), Applied: "a", Wanted: Current,
				Failed: true}, revert},

		// a join
		{"a join goes on", Situation{Record: record(Join, Apply), Wanted: New, Leads: true}, goOn},
		{"a join goes on without a configuration",
			Situation{Record: record(Join, Apply), Wanted: Unreadable}, goOn},
		{"another document during a join", Situation{Record: record(Join, Gate), Wanted: New},
			begin(Join, "")},
		{"another document during a join that has touched the machine",
			Situation{Record: record(Join, Gate, touched), Wanted: New},
			inherit(begin(Join, ""), isTouched)},

		// a change
		{"a change goes on", Situation{Record: record(Change, Drain), Applied: "a", Wanted: New,
			Leads: true}, goOn},
		{"a change goes on outside the window", Situation{Record: record(Change, Gate, touched),
			Applied: "a", Wanted: New, Leads: true, Waits: true}, goOn},
		{"a change goes on without a configuration",
			Situation{Record: record(Change, Gate), Applied: "a", Wanted: Unreadable}, goOn},
		{"a change whose generation was rejected before the rollback was on disk",
			Situation{Record: record(Change, Gate, touched), Applied: "a", Wanted: Rejected,
				Leads: true, Failed: true}, revert},
		{"the same without a configuration",
			Situation{Record: record(Change, Gate, touched), Applied: "a", Wanted: Unreadable,
				Failed: true}, revert},
		{"another document before the machine is touched",
			Situation{Record: record(Change, Prefetch), Applied: "a", Wanted: New},
			begin(Change, "")},
		{"another document after the machine was touched",
			Situation{Record: record(Change, Gate, touched), Applied: "a", Wanted: New},
			inherit(begin(Change, ""), isTouched)},
		{"another document after the Node was cordoned",
			Situation{Record: record(Change, Drain, cordoned), Applied: "a", Wanted: New},
			inherit(begin(Change, ""), isCordoned)},
		{"another document after both",
			Situation{Record: record(Change, Apply, touched, cordoned), Applied: "a", Wanted: New},
			inherit(begin(Change, ""), isTouched, isCordoned)},
		{"the applied document after the machine was touched",
			Situation{Record: record(Change, Gate, touched), Applied: "a", Wanted: Current},
			inherit(begin(Repair, "a"), isTouched)},
		{"the applied document after the Node was cordoned",
			Situation{Record: record(Change, Drain, cordoned), Applied: "a", Wanted: Current},
			inherit(begin(Repair, "a"), isCordoned)},
		{"the applied document, and the API server has moved",
			Situation{Record: record(Change, Gate, touched), Applied: "a", Wanted: Current,
				Moved: true}, inherit(begin(Change, "a"), isTouched)},
		{"a rejected document after the machine was touched",
			Situation{Record: record(Change, Gate, touched), Applied: "a", Wanted: Rejected},
			inherit(begin(Repair, "a"), isTouched)},

		{"a rejected document after the machine was touched, and the API server has moved",
			Situation{Record: record(Change, Gate, touched), Applied: "a", Wanted: Rejected,
				Moved: true}, inherit(begin(Repair, "a"), isTouched)},

		// a change that is committed, but whose Node is not uncordoned yet
		{"a document that waits after the commit",
			Situation{Record: record(Change, Commit, touched, cordoned), Applied: "b", Wanted: New,
				Waits: true}, goOn},
		{"a rejected document after the commit",
			Situation{Record: record(Change, Commit, touched, cordoned), Applied: "b",
				Wanted: Rejected}, goOn},
		{"a followed document after the commit",
			Situation{Record: record(Change, Commit, touched, cordoned), Applied: "b", Wanted: New,
				Followed: true}, inherit(asks, isCordoned)},
		{"a document that waits before the commit is on disk",
			Situation{Record: record(Change, Commit, touched), Applied: "a", Wanted: New, Waits: true},
			inherit(begin(Change, ""), isTouched)},
		{"a document after the commit of a join that follows half a removal",
			Situation{Record: record(Join, Commit, touched), Applied: "b", Wanted: New},
			begin(Change, "")},

		// a change to another address of the API server
		{"a rejected document while the API server is followed",
			Situation{Record: record(Change, Gate, touched, same), Applied: "a", Wanted: Rejected}, goOn},
		{"a document that waits while the API server is followed",
			Situation{Record: record(Change, Gate, touched, same), Applied: "a", Wanted: New,
				Followed: true, Waits: true}, goOn},
		{"a followed document while the API server is followed",
			Situation{Record: record(Change, Gate, touched, same), Applied: "a", Wanted: New,
				Followed: true}, inherit(asks, isTouched)},
		{"a document after the commit of another API server",
			Situation{Record: record(Change, Commit, touched, same), Applied: "a", Wanted: New},
			inherit(begin(Change, ""), isTouched)},

		// a repair
		{"a repair of one thing that was cut off", Situation{Record: record(Repair, Apply, ungated),
			Applied: "a", Wanted: Current}, goOn},
		{"a repair of one thing that was cut off, and a new document that waits",
			Situation{Record: record(Repair, Apply, ungated), Applied: "a", Wanted: New, Waits: true},
			goOn},
		{"a repair of one thing that was cut off, and a new document", Situation{
			Record: record(Repair, Apply, ungated), Applied: "a", Wanted: New}, begin(Change, "")},
		{"a repair that was cut off", Situation{Record: record(Repair, Apply), Applied: "a",
			Wanted: Current}, begin(Repair, "a")},
		{"a repair that follows half a change, and was cut off",
			Situation{Record: record(Repair, Apply, touched, cordoned), Applied: "a",
				Wanted: Current}, inherit(begin(Repair, "a"), isTouched, isCordoned)},
		{"a repair that follows half a change, and a new document",
			Situation{Record: record(Repair, Apply, touched), Applied: "a", Wanted: New},
			inherit(begin(Change, ""), isTouched)},
		{"a repair that has restored half a change, and a followed document",
			Situation{Record: record(Repair, Gate, touched, same), Applied: "a", Wanted: New,
				Followed: true}, asks},
		{"a repair that has restored half a change, and a document that waits",
			Situation{Record: record(Repair, Commit, touched, cordoned, same), Applied: "a", Wanted: New,
				Waits: true}, inherit(begin(Repair, "a"), isCordoned)},
		{"a repair that was cut off, and a new document that waits",
			Situation{Record: record(Repair, Apply), Applied: "a", Wanted: New, Waits: true},
			begin(Repair, "a")},
		{"another document that waits before the machine is touched",
			Situation{Record: record(Change, Drain, cordoned), Applied: "a", Wanted: New, Waits: true},
			inherit(begin(Repair, "a"), isCordoned)},
		{"another document that waits after the machine was touched",
			Situation{Record: record(Change, Gate, touched), Applied: "a", Wanted: New, Waits: true},
			inherit(begin(Change, ""), isTouched)},
		{"a repair without a configuration", Situation{Record: record(Repair, Apply), Applied: "a",
			Wanted: Unreadable}, goOn},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Next(tt.s)
			if got.Why == "" {
				t.Error("the decision gives no reason")
			}
			if r := tt.s.Record; got.Move == Begin && r != nil {
				tt.want.Follows = r.Kind
			}
			got.Why = ""
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}
