package flexnode

import (
	"strconv"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// Applied is the version that the agent has reported to run; 0 if it has not.
func (s Status) Applied() int64 {
	version, _ := strconv.ParseInt(s.Report.AppliedConfigVersion, 10, 64) // it was checked
	return version
}

// ShownRevision is a revision of a node as callers see it. applied is what the node runs.
func ShownRevision(n Node, r *Revision, applied int64) api.Revision {
	shown := api.Revision{
		ConfigVersion: strconv.FormatInt(r.Version, 10), Created: r.Created, CreatedBy: r.By,
		Reason: r.Why, Desired: r.Version == n.Revision, Assigned: r.Version == n.Assigned,
		Applied: r.Version == applied, Failed: r.Version == n.Failed,
	}
	if r.Repeats != 0 {
		shown.Repeats = strconv.FormatInt(r.Repeats, 10)
	}
	return shown
}

// listedChanges bounds how many paths a revision in a list tells.
const listedChanges = 20

// Summarize adds to a revision what has changed with it.
func Summarize(r *api.Revision, changes []api.Change) {
	r.ChangeCount = len(changes)
	for _, c := range changes[:min(len(changes), listedChanges)] {
		r.Changed = append(r.Changed, c.Path)
	}
}

// ReadDiff reads what diff is asked for; 0 is what the caller leaves open.
func ReadDiff(ask api.DiffRequest) (from, to int64, problems Problems) {
	from = readVersion("from", ask.From, &problems)
	to = readVersion("to", ask.To, &problems)
	return from, to, problems
}

// ReadRollback reads which version a rollback is asked for.
func ReadRollback(ask api.RollbackRequest) (to int64, problems Problems) {
	to = readVersion("configVersion", ask.ConfigVersion, &problems)
	if ask.ConfigVersion == "" {
		problems.add("configVersion", "The configVersion to go back to is needed.")
	}
	return to, problems
}

func readVersion(at, text string, problems *Problems) int64 {
	if text == "" {
		return 0
	}
	version, err := strconv.ParseInt(text, 10, 64)
	if err != nil || version <= 0 {
		problems.add(at, "'%s' is not a configVersion.", shorten(text))
		return 0
	}
	return version
}
