package policy

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/release"
)

// Check returns what the policy refuses in a provider's configuration. It never refuses a setting
// that is the default or the applied one: that would only block other changes. Minimum versions do
// not apply to defaults. applied is nil on a machine that is not a node.
func (p Policy) Check(
	wanted config.Config, applied *config.Config, defaults config.Config,
) config.Problems {
	usual, is := texts(&defaults), texts(applied)
	var problems config.Problems
	for _, s := range wanted.Settings() {
		if s.Text == is[s.Path] {
			continue
		}
		found := p.tooOld(s)
		if found == "" && s.Text != usual[s.Path] {
			found = cmp.Or(p.forbidden(s, applied == nil), p.foreign(s))
		}
		if found != "" {
			problems = append(problems, config.Problem{Path: s.Path, Value: s.Shown, Message: found})
		}
	}
	slices.SortStableFunc(problems,
		func(a, b config.Problem) int { return strings.Compare(a.Path, b.Path) })
	return problems
}

func texts(c *config.Config) map[string]string {
	if c == nil {
		return nil
	}
	list := map[string]string{}
	for _, s := range c.Settings() {
		list[s.Path] = s.Text
	}
	return list
}

func at(s config.Setting, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool { return config.Below(s.Path, path) })
}

func (p Policy) forbidden(s config.Setting, joins bool) string {
	for _, may := range p.permissions() {
		first := joins && may.key == apiServer
		if at(s, may.paths) && !may.granted() && !first {
			return fmt.Sprintf("the policy of this machine does not allow a provider to set it (%s in %s)",
				may.key, File)
		}
	}
	return ""
}

func (p Policy) tooOld(s config.Setting) string {
	for _, v := range p.versions() {
		least, limited := release.Parse(v.least)
		chosen, ok := release.Parse(s.Text)
		if s.Path == v.path && limited && (!ok || chosen.Compare(least) < 0) {
			return fmt.Sprintf("the policy of this machine asks for %s or later (%s in %s)", v.least,
				v.key, File)
		}
	}
	return ""
}

func (p Policy) foreign(s config.Setting) string {
	for _, rule := range p.hosts() {
		if rule.allowed == nil || !at(s, rule.paths) {
			continue
		}
		host, ok := hostOf(s)
		if ok && !slices.Contains(rule.allowed, host) {
			return fmt.Sprintf("the policy of this machine allows only the hosts %s (%s in %s)",
				shownHosts(rule.allowed), rule.key, File)
		}
	}
	return ""
}

// hostOf returns the host in a setting; false if it names none, such as a digest.
func hostOf(s config.Setting) (string, bool) {
	if s.Path == image {
		return registry(s.Text), true
	}
	if config.Below(s.Path, registries) {
		host, _, _ := strings.Cut(s.Text, ":") // a list of hosts cannot contain a pattern
		return host, true
	}
	scheme, rest, ok := strings.Cut(s.Text, "://")
	if !ok {
		return "", false
	}
	authority, _, _ := strings.Cut(rest, "/") // the rest may be a template, which is no URL
	u, err := url.Parse(scheme + "://" + authority)
	if err != nil {
		return "", true
	}
	return strings.ToLower(u.Hostname()), true
}

// registry returns the host of an image reference as container runtimes do: the first part, if that
// has a dot or a port, else Docker's.
func registry(reference string) string {
	first, _, more := strings.Cut(reference, "/")
	host, _, port := strings.Cut(first, ":")
	if more && (port || host == "localhost" || strings.Contains(host, ".")) {
		return strings.ToLower(host)
	}
	return "docker.io"
}

func shownHosts(hosts []string) string {
	return cmp.Or(strings.Join(hosts, ", "), "none")
}

// Diagnose selects the diagnoses that a provider may request from the machine.
type Diagnose struct {
	// Doctor and SupportBundle are allow or refuse; default allow.
	Doctor        string `json:"doctor,omitempty"`
	SupportBundle string `json:"supportBundle,omitempty"`
	// Key is the age recipient of support bundles; without one there are none.
	Key string `json:"key,omitempty"`
}

const (
	allow        = "allow"
	refuse       = "refuse"
	keyOfBundles = "diagnose.key" // the path of Diagnose.Key
)

// diagnosis is one kind of diagnosis, with its name in requests.
type diagnosis struct{ name, key, given, means string }

func (d Diagnose) kinds() []diagnosis {
	return []diagnosis{
		{"doctor", "diagnose.doctor", d.Doctor, "the doctor report, if the provider requests it"},
		{"supportBundle", "diagnose.supportBundle", d.SupportBundle,
			"a support bundle, if the provider requests it"},
	}
}

// Refuses returns why the machine refuses to give a provider a diagnosis; "" if it does not.
func (d Diagnose) Refuses(kind string) string {
	for _, known := range d.kinds() {
		switch {
		case known.name != kind:
		case cmp.Or(known.given, allow) != allow:
			return known.key + " refuses it in " + File
		case kind == "supportBundle" && d.Key == "":
			return "no key in " + File + " that a support bundle could be encrypted to: set " +
				keyOfBundles
		default:
			return ""
		}
	}
	return "the agent does not know this kind of diagnosis"
}
