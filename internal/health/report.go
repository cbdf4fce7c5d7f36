package health

import "slices"

// ToReport returns the conditions of a report, at most limit: why a change waits, then what makes
// the node unhealthy, what is False on one that works, and what is Unknown. What was not asked for
// is left out, and Ready, which the provider knows from the cluster.
func ToReport(conditions []Condition, limit int) []Condition {
	told := slices.DeleteFunc(slices.Clone(conditions), func(c Condition) bool {
		return c.Status == True || c.Type == NodeReady || c.NotChecked()
	})
	rank := func(c Condition) int {
		if c.Type == NoChangeWaiting {
			return -1
		}
		return c.rank()
	}
	slices.SortStableFunc(told, func(a, b Condition) int { return rank(a) - rank(b) })
	return told[:min(len(told), limit)]
}
