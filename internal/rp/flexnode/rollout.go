package flexnode

import (
	"slices"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

// Rollout is a row of the store: how far the changes of a cluster are, as Admit has returned it.
type Rollout struct {
	Changes []State `json:"changes"`
}

const (
	maxAllowedFailures = 1000
	defaultAllowance   = 24 * time.Hour
)

// Allow lets more nodes fail changes, or not answer after them, until a time. The error is an *arm.Error or
// Problems.
func (r Rollout) Allow(ask api.AllowVersions, by string, now time.Time) (Rollout, error) {
	var problems Problems
	failures, lasts := max(1, ask.Failures), defaultAllowance
	if ask.Failures < 0 || ask.Failures > maxAllowedFailures {
		problems.add("failures", "This is between 1 and %d.", maxAllowedFailures)
	}
	if ask.For != "" {
		var ok bool
		if lasts, ok = parseDuration(ask.For); !ok || lasts > maxRolloutTime {
			problems.add("for", "'%s' is not a duration of ISO 8601 of at most 7 days, such as PT24H.",
				shorten(ask.For))
		}
	}
	if len(problems) > 0 {
		return r, problems
	}
	next, found := Rollout{slices.Clone(r.Changes)}, false
	for i := range next.Changes {
		s := &next.Changes[i]
		if ask.Change != "" && s.ID != ask.Change || len(s.Failed)+s.Unknown == 0 {
			continue
		}
		s.Allowed, s.AllowedUnknown = len(s.Failed)+failures-1, s.Unknown+failures-1
		s.By, s.Until = by, now.Add(lasts).UTC()
		found = true
	}
	if !found {
		return r, arm.Errorf(409, "ChangeNotFailed", "Every node of the cluster that has tried this "+
			"change is well: see changes in summarizeFlexNodes.")
	}
	return next, nil
}

// maxSettings and maxSetting bound what is shown of a change.
const maxSettings, maxSetting = 20, 200

// Shown are the changes as callers see them.
func (r Rollout) Shown() []api.RolloutChange {
	shown := []api.RolloutChange{}
	for _, s := range r.Changes {
		one := api.RolloutChange{
			Change: s.ID, Settings: s.Settings, Since: s.Since.UTC(), Waiting: s.Waiting,
			Trying: s.Trying, Good: s.Good, Failed: len(s.Failed), Unknown: s.Unknown, Held: s.Hold,
			AllowedBy: s.By,
		}
		if one.Settings == nil {
			one.Settings = []string{}
		}
		if s.By != "" {
			until := s.Until
			one.AllowedUntil = &until
		}
		shown = append(shown, one)
	}
	return shown
}
