package flexnode

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

var aDuration = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`\AP(?:([0-9]{1,5})D)?(?:T(?:([0-9]{1,5})H)?(?:([0-9]{1,5})M)?(?:([0-9]{1,7})S)?)?\z`)
})

// parseDuration reads a duration of ISO 8601, as far as it says the same everywhere: days of 24
// hours, hours, minutes, seconds.
func parseDuration(s string) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	m := aDuration().FindStringSubmatch(s)
	if m == nil || strings.HasSuffix(s, "P") || strings.HasSuffix(s, "T") {
		return 0, false
	}
	var total time.Duration
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		n, _ := strconv.Atoi(m[i+1]) // what is left out is 0
		total += time.Duration(n) * unit
	}
	return total, true
}

// goDuration is a duration as the agent's configuration writes it: 15m; "" for none.
func goDuration(s string) string {
	d, ok := parseDuration(s)
	if !ok {
		return ""
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// durations wants durations that can be read. How long they may be is the agent's to say.
func (p *Problems) durations(d api.Desired) {
	check := func(at, s string) {
		_, ok := parseDuration(s)
		p.unless(ok || s == "", "properties."+at, "'%s' is not a duration of ISO 8601 in days, "+
			"hours, minutes and seconds, such as PT15M.", shorten(s))
	}
	check("upgradePolicy.deadline", d.UpgradePolicy.Deadline)
	check("upgradePolicy.readyTimeout", d.UpgradePolicy.ReadyTimeout)
	if w := d.UpgradePolicy.MaintenanceWindow; w != nil {
		check("upgradePolicy.maintenanceWindow.duration", w.Duration)
	}
	check("monitoring.interval", d.Monitoring.Interval)
}
