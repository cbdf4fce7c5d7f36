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

// limit is a limit of a policy; given is its value in words, "" if unset.
type limit struct {
	key, given, usual, means string
	paths                    []string // the settings that it limits, if any
	refusal                  string   // completes "the policy of this machine ..."
	allows                   func(config.Setting) bool
	ofDefaults               bool // it can refuse the default of a setting
}

// minimum limits a version.
func minimum(name, oldest string) limit {
	path := name + ".version"
	least, limited := release.Parse(oldest)
	return limit{"minimumVersions." + name, oldest, "none", "the oldest " + path, []string{path},
		"asks for " + oldest + " or later", func(s config.Setting) bool {
			v, ok := release.Parse(s.Text)
			return !limited || ok && v.Compare(least) >= 0
		}, true}
}

// hosts limits the hosts in settings; nil allows any.
func hosts(name string, list []string, means string, paths ...string) limit {
	given := ""
	if list != nil {
		given = cmp.Or(strings.Join(list, ", "), "none")
	}
	return limit{"hosts." + name, given, "any", means, paths, "allows only the hosts " + given,
		func(s config.Setting) bool {
			host, named := hostOf(s)
			return list == nil || !named || slices.Contains(list, host)
		}, false}
}

// apiServer is the permission that does not apply to a machine's first API server and Arc machine.
const apiServer = "apiServer"

// permission limits who may set settings.
func permission(name string, given *bool, usual bool, means string, paths ...string) limit {
	granted := *cmp.Or(given, &usual)
	return limit{"allow." + name, word(given), word(&usual), means, paths,
		"does not allow a provider to set it", func(config.Setting) bool { return granted }, false}
}

// audiences limits the audiences of tokens. An application with an api:// id needs no permission:
// it is the provider's, and no resource of Azure.
func audiences(given *bool) limit {
	l := permission("audiences", given, false, "tokens of the machine's Azure identity for other "+
		"than an application with an api:// id", "agent.monitoring.audience")
	permits := l.allows
	l.allows = func(s config.Setting) bool {
		return permits(s) || strings.HasPrefix(s.Text, "api://")
	}
	return l
}

const allowed = "allowed"

// word returns the value of a permission in words; "" if unset.
func word(granted *bool) string {
	switch {
	case granted == nil:
		return ""
	case *granted:
		return allowed
	}
	return "refused"
}

// Check returns what the policy refuses in a provider's configuration. It never refuses a setting
// that is the applied one, or the default if that is not a version: that would only block other
// changes. applied is nil on a machine that is not a node.
func (p Policy) Check(
	wanted config.Config, applied *config.Config, defaults config.Config,
) config.Problems {
	usual, is := texts(&defaults), texts(applied)
	limits := p.limits()
	slices.Reverse(limits) // a refused permission comes before refused hosts
	var problems config.Problems
	for _, s := range wanted.Settings() {
		i := slices.IndexFunc(limits, func(l limit) bool {
			concerns := func(path string) bool { return config.Below(s.Path, path) }
			exempt := s.Text == usual[s.Path] && !l.ofDefaults ||
				applied == nil && l.key == "allow."+apiServer
			return slices.ContainsFunc(l.paths, concerns) && !exempt && !l.allows(s)
		})
		if i >= 0 && s.Text != is[s.Path] {
			problems = append(problems, config.Problem{Path: s.Path, Value: s.Shown,
				Message: fmt.Sprintf("the policy of this machine %s (%s in %s)",
					limits[i].refusal, limits[i].key, File)})
		}
	}
	slices.SortStableFunc(problems, byPath)
	return problems
}

func texts(c *config.Config) map[string]string {
	list := map[string]string{}
	for _, s := range cmp.Or(c, &config.Config{}).Settings() {
		list[s.Path] = s.Text
	}
	return list
}

// The settings that name hosts without a URL.
const image, registries = "containerd.pauseImage", "azure.registries"

// hostOf returns the host in a setting; false if it names none, such as a digest.
func hostOf(s config.Setting) (string, bool) {
	if s.Path == image {
		first, _, more := strings.Cut(s.Text, "/")
		host, _, port := strings.Cut(first, ":")
		if more && (port || host == "localhost" || strings.Contains(host, ".")) {
			return strings.ToLower(host), true
		}
		return "docker.io", true // as containerd completes it
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

func (d Diagnose) kinds() map[string]string {
	return map[string]string{"doctor": d.Doctor, "supportBundle": d.SupportBundle}
}

// Refuses returns why the machine refuses to give a provider a diagnosis; "" if it does not.
func (d Diagnose) Refuses(kind string) string {
	given, known := d.kinds()[kind]
	switch {
	case !known:
		return "the agent does not know this kind of diagnosis"
	case cmp.Or(given, allow) != allow:
		return "diagnose." + kind + " refuses it in " + File
	case kind == "supportBundle" && d.Key == "":
		return "no key in " + File + " that a support bundle could be encrypted to: set " + keyOfBundles
	}
	return ""
}
