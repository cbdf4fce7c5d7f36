package flexnode

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// Outline is a node as summaries and filters see it. Many nodes have the same one.
type Outline struct {
	Wanted unique.Handle[Wanted]
	Said   unique.Handle[Said]
	Order  Order
	Heard  Heard
}

// Wanted summarizes the desired state of a node and its progress.
type Wanted struct {
	State    string // provisioningState, "" is Succeeded
	Versions Versions
	// Monitored is continuousMonitoring. Joining, Former and Reason report that the node has a
	// credential, previous identities, a reason for its state.
	Monitored, Joining, Former, Reason bool
	// Failed reports that it failed its desired revision, LeftOut that no change admits it, Trying
	// that it tries one, Asks that its agent asks to begin one.
	Failed, LeftOut, Trying, Asks bool
	// Unreleased reports that Node.Unreleased is set.
	Unreleased bool
	// Second reports that another machine asked to be the node.
	Second bool
	// Diagnose reports that a diagnosis is pending.
	Diagnose bool
	Paused   bool // by its owner
	// Ended is the state in which the last credential has ended (JoinEnd.State).
	Ended string
}

// WantedOf returns the summary of a node.
func WantedOf(n Node) Wanted {
	w := Wanted{
		State: n.State, Versions: n.Chosen.Versions, Monitored: n.Desired.ContinuousMonitoring,
		Joining: n.Credential != "", Former: n.Former != "", Reason: n.Reason != "",
		Failed:  n.Failed != 0 && n.Failed == n.Revision,
		LeftOut: n.leftOut(), Trying: n.Attempt != nil && n.Attempt.Outcome != Good &&
			n.Attempt.Outcome != Bad,
		Asks: n.Asks != 0 && n.Asks == n.Revision, Unreleased: n.Unreleased != 0,
		Second: n.Second != nil, Diagnose: n.Diagnose != nil,
		Paused: n.Desired.UpgradePolicy.Paused,
	}
	if n.Ended != nil {
		w.Ended = n.Ended.State
	}
	return w
}

// Said summarizes the reports about a node by its agent and its cluster.
type Said struct {
	Components api.Components
	// Ready is the brief Ready condition of the Node; the zero one without a Node.
	Ready api.Condition
	// Conditions has a line of type, status and reason for each condition of the agent.
	Conditions string
	// Failure is the reason that a configuration failed.
	Failure string
	Drifted bool
}

// Order numbers the configVersions of a node: equal ones have the same number.
type Order struct {
	Revision, Assigned, Applied, Observed, Failed uint8
	// Lost reports that the applied one is later than all others of the node (Node.Lost).
	Lost bool
}

// Ordered returns the order of a node's versions; 0 is none. Of the node it reads Revision,
// Assigned and Before.
func Ordered(n Node, applied, observed, failed int64) Order {
	all := []int64{0, n.Revision, n.Assigned, applied, observed, failed}
	number := func(version int64) uint8 { return uint8(slices.Index(all, version)) }
	return Order{
		Revision: number(n.Revision), Assigned: number(n.Assigned), Applied: number(applied),
		Observed: number(observed), Failed: number(failed), Lost: n.unknown(applied),
	}
}

// Heard is the class of Evidence.Seen.
type Heard uint8

// NeverHeard, HeardLately and HeardOnce are the classes.
const (
	NeverHeard Heard = iota
	HeardLately
	HeardOnce
)

// HeardAt returns the class of an agent that was last heard of at a time.
func HeardAt(seen, now time.Time) Heard {
	switch {
	case seen.IsZero():
		return NeverHeard
	case now.Sub(seen) <= silentAfter:
		return HeardLately
	}
	return HeardOnce
}

// maxReason bounds the reason of a condition in an outline: one word.
const maxReason = 64

// SaidOf returns the summary of a status.
func SaidOf(s Status) Said {
	said := Said{Drifted: s.Report.Drift != nil && s.Report.Drift.Count > 0}
	if s.Ready != nil {
		said.Ready = brief(*s.Ready)
	}
	var lines strings.Builder
	for _, c := range s.Report.Conditions {
		c = brief(c)
		lines.WriteString(c.Type + " " + c.Status + " " + c.Reason + "\n")
	}
	said.Conditions = lines.String()
	if c := s.Report.Components; c != nil {
		said.Components = *c
	}
	said.Components.Agent = cmp.Or(said.Components.Agent, s.Report.AgentVersion)
	if c := s.Report.Config; c != nil && c.Failed != nil {
		said.Failure = c.Failed.Reason
	}
	return said
}

// brief returns a condition without time and message.
func brief(c api.Condition) api.Condition {
	if len(c.Reason) > maxReason || strings.ContainsAny(c.Reason, " \n") {
		c.Reason = ""
	}
	return api.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason}
}

func conditionsIn(lines string) (all []api.Condition) {
	for line := range strings.Lines(lines) {
		part := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		all = append(all, api.Condition{Type: part[0], Status: part[1], Reason: part[2]})
	}
	return all
}

// Versions returns the configVersions in a status; 0 for a missing one.
func (s Status) Versions() (applied, observed, failed int64) {
	if c := s.Report.Config; c != nil {
		observed = reportedVersion(c.Observed)
		if c.Failed != nil {
			failed = reportedVersion(c.Failed.Version)
		}
	}
	return s.Applied(), observed, failed
}

// Applied returns the version that the agent reports to run; 0 if it reports none.
func (s Status) Applied() int64 { return reportedVersion(s.Report.AppliedConfigVersion) }

// reportedVersion reads a configVersion of a checked report; 0 for none.
func reportedVersion(text string) int64 {
	version, _ := strconv.ParseInt(text, 10, 64)
	return version
}

// Unsettled reports whether Admit may have something to do for a node.
func (o Outline) Unsettled() bool {
	w := o.Wanted.Value()
	switch {
	case w.Trying, w.Failed && o.Order.Applied == o.Order.Revision,
		w.Asks && o.Order.Applied != o.Order.Revision:
		return true
	case w.Failed:
		return o.Order.Assigned == o.Order.Revision && o.Order.Applied != 0
	}
	return o.Order.Assigned != o.Order.Revision ||
		o.Order.Failed != 0 && o.Order.Failed == o.Order.Revision
}

// evidence returns evidence that gives the nodes' conditions, except for times and messages.
func (o Outline) evidence(reachable bool) Evidence {
	wanted, said := o.Wanted.Value(), o.Said.Value()
	text := func(n uint8) string { return ShownVersion(int64(n)) }
	now := time.Unix(1<<30, 0)
	e := Evidence{Now: now, Reachable: reachable, Seen: map[Heard]time.Time{
		HeardLately: now, HeardOnce: now.Add(-silentAfter - time.Second),
	}[o.Heard]}
	some := func(is bool) string { return map[bool]string{true: "x"}[is] }
	e.Node = Node{
		State: wanted.State, Revision: int64(o.Order.Revision), Assigned: int64(o.Order.Assigned),
		Credential: some(wanted.Joining), Former: Former(some(wanted.Former)),
		Reason: some(wanted.Reason), Floor: math.MaxInt64,
	}
	e.Node.Desired.ContinuousMonitoring = wanted.Monitored
	if wanted.Failed {
		e.Node.Failed = e.Node.Revision
	}
	if o.Order.Lost || wanted.Unreleased {
		e.Node.Unreleased = 1
	}
	if wanted.LeftOut {
		e.Node.FailedChanges = make([]string, leftOutAfter)
	}
	if wanted.Second {
		e.Node.Second = &SecondMachine{}
	}
	if wanted.Ended != "" {
		e.Node.Ended = &JoinEnd{State: wanted.Ended}
	}
	if said.Ready != (api.Condition{}) {
		e.Status.Ready = &said.Ready
	}
	report := &e.Status.Report
	report.Conditions = conditionsIn(said.Conditions)
	report.AppliedConfigVersion = text(o.Order.Applied)
	report.Config = &api.Applied{Observed: text(o.Order.Observed)}
	if o.Order.Failed != 0 {
		report.Config.Failed = &api.FailedConfig{Version: text(o.Order.Failed), Reason: said.Failure}
	}
	return e
}
