package flexnode

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/untrusted"
)

// MaxReport limits an agent's report, in bytes: every replica has it in memory.
const MaxReport = 8 << 10

// Limits of a report.
const (
	maxConditions = 64
	maxItems      = 20
	maxText       = 1024
	maxName       = 256
	maxLog        = 4096
	maxVersion    = 64
)

// ReadReport reads an agent's report into the form in which it is stored: a value that has two
// places is at the older one (appliedConfigVersion, agentVersion). The error is of type *arm.Error
// or Problems. Words that only a newer agent uses are kept as texts.
func ReadReport(body []byte) (api.Report, error) {
	var r api.Report
	if err := DecodeLenient(body, &r); err != nil {
		return r, err
	}
	var problems Problems
	problems.report(r)
	config := *cmp.Or(r.Config, &api.Applied{})
	problems.merge("config.applied", &r.AppliedConfigVersion, &config.Applied)
	components := *cmp.Or(r.Components, &api.Components{})
	problems.merge("components.agent", &r.AgentVersion, &components.Agent)
	r.Config, r.Components = unlessEmpty(config), unlessEmpty(components)
	return r, problems.err()
}

// merge moves a value from the newer place to the older one.
func (p *Problems) merge(at string, older, newer *string) {
	switch {
	case *older == "":
		*older = *newer
	case *newer != "" && *newer != *older:
		p.add(at, "This is '%s', but the older property with the same meaning is '%s'.",
			shorten(*newer), shorten(*older))
	}
	*newer = ""
}

func (p *Problems) report(r api.Report) {
	p.unless(len(r.Conditions) <= maxConditions, "conditions",
		"There are %d conditions; at most %d are kept.", len(r.Conditions), maxConditions)
	p.version("appliedConfigVersion", r.AppliedConfigVersion)
	p.bound("agentVersion", r.AgentVersion, maxVersion)
	p.time("lastConfigApplied", r.LastConfigApplied)
	for i, c := range r.Conditions {
		at := fmt.Sprintf("conditions[%d].", i)
		p.unless(isConditionType(c.Type), at+"type",
			"A condition's type is 1 to 63 letters and digits, a letter first.")
		p.unless(isConditionType(c.Status), at+"status",
			"A condition's status is one word, such as True.")
		p.unless(c.Reason == "" || c.Reason == untrusted.Reason(c.Reason), at+"reason",
			"A reason is 1 to 64 letters and digits.")
		p.bound(at+"message", c.Message, maxText)
		p.time(at+"lastTransitionTime", &c.LastTransitionTime)
	}
	if c := r.Components; c != nil {
		for _, one := range []struct{ name, value string }{
			{"kubelet", c.Kubelet}, {"containerd", c.Containerd}, {"runc", c.Runc}, {"cni", c.CNI},
			{"npd", c.NPD}, {"agent", c.Agent}, {"kernel", c.Kernel}, {"os", c.OS},
		} {
			p.bound("components."+one.name, one.value, maxVersion)
		}
	}
	if r.Config != nil {
		p.applied(*r.Config)
	}
	if r.Drift != nil {
		p.drift(*r.Drift)
	}
}

func (p *Problems) applied(c api.Applied) {
	p.version("config.observed", c.Observed)
	p.version("config.applied", c.Applied)
	if f := c.Failed; f != nil {
		const at = "config.failed."
		p.unless(f.Version != "" && isConfigVersion(f.Version), at+"version",
			"What has failed must be named by its configVersion.")
		p.bound(at+"reason", f.Reason, maxVersion)
		p.bound(at+"message", f.Message, maxText)
		p.bound(at+"log", strings.ReplaceAll(f.Log, "\n", " "), maxLog)
		p.time(at+"at", f.At)
	}
}

func (p *Problems) drift(d api.Drift) {
	p.bound("drift.policy", d.Policy, maxVersion)
	p.time("drift.lastSeen", d.LastSeen)
	p.unless(len(d.Items) <= maxItems, "drift.items", "There are %d items; at most %d are allowed. "+
		"Use the count for the total.", len(d.Items), maxItems)
	p.unless(d.Count >= len(d.Items), "drift.count",
		"The count is less than the items that are listed.")
	p.unless(d.Count <= math.MaxInt32, "drift.count", "The count is larger than %d.", math.MaxInt32)
	for i, item := range d.Items {
		at := fmt.Sprintf("drift.items[%d].", i)
		p.unless(item.Name != "", at+"name", "An item must name its subject.")
		p.bound(at+"name", item.Name, maxName)
		p.bound(at+"message", item.Message, maxName)
	}
}

// version checks that a value is a configVersion or empty.
func (p *Problems) version(at, value string) {
	p.unless(isConfigVersion(value), at, "This is not a configVersion.")
}

// time checks that a time is zero, or has a year that is valid in every time zone: a client, or
// encoding/json, rejects the whole list with one that is not.
func (p *Problems) time(at string, t *time.Time) {
	p.unless(t == nil || t.IsZero() || t.Unix() >= 0 && t.UTC().Year() <= 9998, at,
		"This is not in one of the years 1970 to 9998.")
}

// bound checks that a value is one line of at most most bytes, without invisible characters.
func (p *Problems) bound(at, value string, most int) {
	hidden := func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsGraphic(r) }
	p.unless(!strings.ContainsFunc(value, hidden), at,
		"This has line breaks or non-printable characters.")
	p.unless(len(value) <= most, at, "This is longer than %d characters.", most)
}
