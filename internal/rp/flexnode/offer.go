package flexnode

import (
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// Standing is what decides which revision of a node agents are offered.
type Standing struct {
	Node    Node
	History History
	// Applied is what its agent has reported to run; 0 if it has not.
	Applied int64
	// Failures are those of its cluster, Tenant is the cluster's.
	Failures Failures
	Tenant   string
}

// Offer is the node with the revision that agents are offered. It is the desired one, unless the
// node has failed to run it, or others have failed its versions, which the node does not run yet.
// Then it is the one that the node runs, if that is kept: a node that has nothing to go back to
// keeps what it has.
func (s Standing) Offer() (Node, error) {
	n := s.Node
	desired, err := s.History.Find(n.Revision)
	if err != nil || desired == nil {
		return n, err
	}
	applied, err := s.History.Find(s.Applied)
	if err != nil {
		return n, err
	}
	held, err := s.isHeld(desired, applied)
	switch {
	case err != nil:
		return n, err
	case !held:
		n.Assigned = n.Revision
	case n.Assigned == n.Revision && applied != nil && s.Applied != n.Revision:
		n.Assigned = s.Applied
		if applied.Desired != nil { // its agent is again who it was
			was := IdentityOf(n.ID, *applied.Desired, s.Tenant)
			n.Former = n.Former.with(was, n.Identity)
		}
	}
	return n, nil
}

func (s Standing) isHeld(desired, applied *Revision) (bool, error) {
	switch n := s.Node; n.Revision {
	case n.Failed:
		return true, nil
	case n.Insisted, s.Applied:
		return false, nil
	}
	wanted, err := chosenIn(desired.Own)
	if err != nil || !s.Failures.Hold(wanted.Versions) {
		return false, err
	}
	if applied == nil {
		return true, nil
	}
	runs, err := chosenIn(applied.Own)
	return runs.Versions != wanted.Versions, err
}

// Report is the node after a report of its agent, and, if the report tells that versions have
// failed which the node did not run before, those versions. They are for the cluster's Failures. A
// node that had nothing to run before has failed to join, and one that a person has rolled back has
// not failed: both say nothing of versions.
func (s Standing) Report(report api.Report) (n Node, failed *api.Versions, err error) {
	var version int64
	s.Applied, _, version = Status{Report: report}.Versions()
	switch {
	case version == s.Node.Revision && s.Applied != version && s.Node.Failed != version:
		s.Node.Failed = version
		if report.Config.Failed.Reason == api.RolledBack {
			break
		}
		if failed, err = s.changed(version); err != nil {
			return s.Node, nil, err
		}
	case s.Applied == s.Node.Failed:
		s.Node.Failed = 0
	}
	n, err = s.Offer()
	return n, failed, err
}

// changed are the versions of a revision, if they are others than those that run; nil if not.
func (s Standing) changed(version int64) (*api.Versions, error) {
	to, err := s.History.Find(version)
	if err != nil || to == nil {
		return nil, err
	}
	from, err := s.History.Find(s.Applied)
	if err != nil || from == nil {
		return nil, err
	}
	before, err := chosenIn(from.Own)
	if err != nil {
		return nil, err
	}
	after, err := chosenIn(to.Own)
	if err != nil || before.Versions == after.Versions {
		return nil, err
	}
	return &after.Versions, nil
}

// RefreshOffered renders the revision again that the agents of a node are offered in place of the
// desired one, after the facts of its cluster have changed. It is to be called before Refresh,
// whose revision is the later one.
func RefreshOffered(
	n Node, offered *Revision, parent Parent, at time.Time, renderer string,
) (Node, *Revision) {
	if parent.FactsLayer == nil || offered == nil || n.Assigned == n.Revision ||
		offered.Facts == parent.factsID() {
		return n, nil
	}
	r := *offered
	r.Version, r.Repeats = NextVersion(n.newest(), at), offered.Version
	r.Facts, r.Created, r.By, r.Why, r.Renderer = parent.factsID(), at.UTC(), "", "facts", renderer
	n.Assigned = r.Version
	return n, &r
}

// newest is what the next revision must be above.
func (n Node) newest() int64 { return max(n.Revision, n.Assigned, n.Floor) }
