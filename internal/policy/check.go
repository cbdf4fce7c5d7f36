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

// Check returns what the policy refuses of a configuration that a provider has delivered. A setting
// that is the program's default, or as it is applied on this machine, is never refused: a machine
// that runs with it already would only be cut off from other changes. The minimum versions do not
// count for the defaults. applied is nil on a machine that is no node.
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

// texts returns the settings of a configuration by path; nil for none.
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

// at reports whether a setting is at one of some paths, or below it.
func at(s config.Setting, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool { return config.Below(s.Path, path) })
}

// forbidden returns why a setting may not be set; "" where it may.
func (p Policy) forbidden(s config.Setting, joins bool) string {
	for _, may := range p.permissions() {
		first := joins && may.key == apiServer
		if at(s, may.paths) && !may.granted() && !first {
			return fmt.Sprintf("the policy of this machine lets no provider set it (%s in %s)",
				may.key, File)
		}
	}
	return ""
}

// tooOld returns why a version may not be chosen; "" where it may.
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

// foreign is why the host that a setting names may not be used; "" where there is no reason.
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

// hostOf returns the host that a setting names; false for one that names none, such as a digest.
func hostOf(s config.Setting) (string, bool) {
	if s.Path == image {
		return registry(s.Text), true
	}
	if config.Below(s.Path, registries) {
		host, _, _ := strings.Cut(s.Text, ":") // a pattern is no host that a list can have
		return host, true
	}
	scheme, rest, ok := strings.Cut(s.Text, "://")
	if !ok {
		return "", false
	}
	authority, _, _ := strings.Cut(rest, "/") // what follows may be a template, which is no URL
	u, err := url.Parse(scheme + "://" + authority)
	if err != nil {
		return "", true
	}
	return strings.ToLower(u.Hostname()), true
}

// registry returns the host of an image reference, as container runtimes read it: the first part,
// if that has a dot or a port, else Docker's.
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
