package flexnode

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Policy limits the rollout of a change in a cluster: RolloutPolicy with its defaults.
type Policy struct {
	// MaxUnavailable is the number of nodes that may be under a change at once, MaxUnknown the number
	// that may fail to answer after a change before it is held. Both are at least one.
	MaxUnavailable, MaxUnknown Share
	// Canaries must be good before others are admitted; more than MaxFailed failures hold a change.
	Canaries, MaxFailed int
	// A node must become Ready within Deadline, and stay Ready for Soak to be good.
	Soak, Deadline time.Duration
	// Paused admits no change at all.
	Paused bool
}

// Share is a number of nodes, or a percentage of the nodes of a cluster.
type Share struct {
	number  int
	percent bool
}

// Of returns the number for a cluster with so many nodes: rounded down, at least one.
func (s Share) Of(nodes int) int {
	if s.percent {
		return max(1, nodes*s.number/100)
	}
	return max(1, s.number)
}

// readShare reads "3" or "10%".
func readShare(text string) (Share, bool) {
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || percent && n > 100 || !percent && n == 0 {
		return Share{}, false
	}
	return Share{int(n), percent}, true
}

// maxRolloutTime bounds soak and deadline.
const maxRolloutTime = 7 * 24 * time.Hour

// ReadPolicy returns the policy of a cluster, with the default of each setting that is left open.
func ReadPolicy(given *RolloutPolicy) (Policy, Problems) {
	given = cmp.Or(given, &RolloutPolicy{})
	const at = "properties.rolloutPolicy."
	var problems Problems
	share := func(name, text string) Share {
		s, ok := readShare(text)
		problems.unless(ok, at+name, "'%s' is not a number of nodes such as 3, or a percentage such as "+
			"10%%.", shorten(text))
		return s
	}
	count := func(name string, n *int) int {
		nodes := *cmp.Or(n, new(1))
		problems.unless(0 <= nodes && nodes <= 1000, at+name, "This must be between 0 and 1000.")
		return nodes
	}
	p := Policy{
		MaxUnavailable: share("maxUnavailable", cmp.Or(given.MaxUnavailable, "10%")),
		MaxUnknown:     share("maxUnknown", cmp.Or(given.MaxUnknown, "20%")),
		Canaries:       count("canaries", given.Canaries),
		MaxFailed:      count("maxFailed", given.MaxFailed),
		Soak:           10 * time.Minute, Deadline: 30 * time.Minute, Paused: given.Paused,
	}
	problems.rolloutTime(at+"soak", given.Soak, "PT10M", &p.Soak)
	problems.rolloutTime(at+"deadline", given.Deadline, "PT10M", &p.Deadline)
	problems.unless(p.Deadline >= time.Minute, at+"deadline",
		"This must be at least one minute, PT1M.")
	return p, problems
}

// rolloutTime reads a duration of at most maxRolloutTime, such as example, unless it is left open.
func (p *Problems) rolloutTime(at, text, example string, to *time.Duration) {
	if text == "" {
		return
	}
	var ok bool
	if *to, ok = parseDuration(text); !ok || *to > maxRolloutTime {
		p.add(at, "'%s' is not a duration of ISO 8601 of at most 7 days, such as %s.", shorten(text),
			example)
	}
}

var aDuration = regexp.MustCompile(
	`\AP(?:([0-9]{1,5})D)?(?:T(?:([0-9]{1,5})H)?(?:([0-9]{1,5})M)?(?:([0-9]{1,7})S)?)?\z`)

// parseDuration reads a duration of ISO 8601: days of 24 hours, hours, minutes, seconds.
func parseDuration(s string) (time.Duration, bool) {
	m := aDuration.FindStringSubmatch(s)
	if m == nil || strings.HasSuffix(s, "P") || strings.HasSuffix(s, "T") {
		return 0, false
	}
	var total time.Duration
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		n, _ := strconv.Atoi(m[i+1]) // 0 if it is left out
		total += time.Duration(n) * unit
	}
	return total, true
}

// durations checks that durations can be read. The agent's rules limit them.
func (p *Problems) durations(d Desired) {
	check := func(at, s string) {
		_, ok := parseDuration(s)
		p.unless(ok || s == "", "properties."+at, "'%s' is not a duration of ISO 8601 in days, "+
			"hours, minutes and seconds, such as PT15M.", shorten(s))
	}
	check("upgradePolicy.deadline", d.UpgradePolicy.Deadline)
	check("upgradePolicy.readyTimeout", d.UpgradePolicy.ReadyTimeout)
	check("monitoring.interval", d.Monitoring.Interval)
	if w := d.UpgradePolicy.MaintenanceWindow; w != nil {
		check("upgradePolicy.maintenanceWindow.duration", w.Duration)
	}
}
