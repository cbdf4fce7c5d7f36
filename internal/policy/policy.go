// Package policy limits what a provider may do with a machine: the owner's policy is a file that
// root writes on the machine and no provider changes. It checks configurations from a provider, and
// never one that root wrote. It is pure: package saved reads the file.
package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/release"
)

// File is the policy of a machine. Without it all limits have their defaults.
const File = "/etc/aks-flex-node/policy.json"

// The values of deletion: the reaction to the provider's deletion of the flexNodeConfig.
const (
	Follow  = "follow"  // the machine is given back
	Confirm = "confirm" // wait for a person
	Never   = "never"   // only report it
)

// Policy holds the limits in the file. Unset ones have their defaults.
type Policy struct {
	Deletion        string   `json:"deletion,omitempty"` // Follow, Confirm or Never; default Follow
	MinimumVersions Versions `json:"minimumVersions,omitzero"`
	Hosts           Hosts    `json:"hosts,omitzero"`
	// AgentUpdates reports whether a provider may update the agent.
	AgentUpdates *bool    `json:"agentUpdates,omitempty"`
	Allow        Allow    `json:"allow,omitzero"`
	Diagnose     Diagnose `json:"diagnose,omitzero"`
}

// Confirms reports whether a deletion by the provider waits for a person.
func (p Policy) Confirms() bool { return p.Deletion == Confirm }

// Keeps reports whether a deletion by the provider is ignored.
func (p Policy) Keeps() bool { return p.Deletion == Never }

// Versions are the oldest versions that a provider may choose; "" allows any.
type Versions struct {
	Kubernetes string `json:"kubernetes,omitempty"`
	Containerd string `json:"containerd,omitempty"`
	Runc       string `json:"runc,omitempty"`
}

// Hosts are the hosts that a configuration may name, as names or addresses without a port; nil
// allows any, an empty list none.
type Hosts struct {
	Downloads []string `json:"downloads,omitzero"`
	Endpoints []string `json:"endpoints,omitzero"`
}

// Allow selects the settings that a provider may set; nil is the default.
type Allow struct {
	Overrides       *bool `json:"overrides,omitempty"`
	URLTemplates    *bool `json:"urlTemplates,omitempty"`
	MirrorChecksums *bool `json:"mirrorChecksums,omitempty"`
	Paths           *bool `json:"paths,omitempty"`
	APIServer       *bool `json:"apiServer,omitempty"`
	Proxies         *bool `json:"proxies,omitempty"`
}

// Parse parses a policy. The error is of type config.Problems and names each problem by its path.
func Parse(data []byte) (Policy, error) {
	var p Policy
	if err := config.Decode(data, &p); err != nil {
		return Policy{}, err
	}
	var problems config.Problems
	wrong := func(path, value, message string) {
		problems = append(problems,
			config.Problem{Path: path, Value: fmt.Sprintf("%q", value), Message: message})
	}
	if p.Deletion != "" && !slices.Contains([]string{Follow, Confirm, Never}, p.Deletion) {
		wrong("deletion", p.Deletion, "must be follow, confirm or never")
	}
	for _, hosts := range p.hosts() {
		for i, host := range hosts.allowed {
			if !isHost(host) {
				wrong(fmt.Sprintf("%s[%d]", hosts.key, i), host,
					"must be the name or IP address of a host, in lower case, without a port")
			}
		}
	}
	for _, v := range p.versions() {
		if _, ok := release.Parse(v.least); v.least != "" && !ok {
			wrong(v.key, v.least, "must be a version x.y.z")
		}
	}
	for _, kind := range p.Diagnose.kinds() {
		if kind.given != "" && kind.given != allow && kind.given != refuse {
			wrong(kind.key, kind.given, "must be allow or refuse")
		}
	}
	if key := p.Diagnose.Key; key != "" {
		if _, err := age.ParseX25519Recipient(key); err != nil {
			wrong(keyOfBundles, key, "must be a recipient of age: age1...")
		}
	}
	if problems != nil {
		return Policy{}, problems
	}
	return p, nil
}

// isHost reports whether a text is a host as returned by hostOf.
func isHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	return s != "" && s == strings.ToLower(s) && !strings.ContainsAny(s, "/:@?#[]{}% *")
}

type permission struct {
	key   string
	given *bool
	usual bool
	paths []string
	means string
}

func (p permission) granted() bool {
	if p.given != nil {
		return *p.given
	}
	return p.usual
}

// apiServer is the permission that does not apply to a machine's first API server.
const apiServer = "allow.apiServer"

func (p Policy) permissions() []permission {
	return []permission{
		{"allow.overrides", p.Allow.Overrides, false, []string{"artifacts.overrides"},
			"other programs than the releases that this agent knows"},
		{"allow.urlTemplates", p.Allow.URLTemplates, false,
			[]string{"kubernetes.urlTemplate", "runc.url"}, "other download locations of programs"},
		{"allow.mirrorChecksums", p.Allow.MirrorChecksums, false,
			[]string{"artifacts.trustMirrorChecksums"}, "checksums that mirrors publish for their own " +
				"files"},
		{"allow.paths", p.Allow.Paths, false,
			[]string{"paths", "agent.logDir", "agent.metrics.textfile", "artifacts.directory",
				"azure.cliUser"},
			"other directories, files and users of this machine"},
		{apiServer, p.Allow.APIServer, true, []string{"node.kubelet.serverURL",
			"node.kubelet.caCertData", "azure.resourceManagerEndpoint"},
			"another API server or CA than the applied one, or another Resource Manager to ask for them"},
		{"allow.proxies", p.Allow.Proxies, true, []string{"proxy"}, "other proxies"},
	}
}

type minimum struct{ key, least, path string }

func (p Policy) versions() []minimum {
	return []minimum{
		{"minimumVersions.kubernetes", p.MinimumVersions.Kubernetes, "kubernetes.version"},
		{"minimumVersions.containerd", p.MinimumVersions.Containerd, "containerd.version"},
		{"minimumVersions.runc", p.MinimumVersions.Runc, "runc.version"},
	}
}

type hostRule struct {
	key            string
	allowed, paths []string
	means          string
}

// The settings that name hosts without a URL.
const (
	image      = "containerd.pauseImage"
	registries = "azure.registries"
)

func (p Policy) hosts() []hostRule {
	return []hostRule{
		{"hosts.downloads", p.Hosts.Downloads, []string{"artifacts.mirror", "artifacts.mirrors",
			"artifacts.overrides", "kubernetes.urlTemplate", "runc.url", "azure.arc.package.url", image},
			"hosts that a configuration may name for downloads"},
		{"hosts.endpoints", p.Hosts.Endpoints, []string{"azure.resourceManagerEndpoint",
			"azure.authorityHost", registries, "agent.monitoring.endpoint",
			"node.kubelet.serverURL"},
			"hosts that a configuration may name as Azure, provider and API server"},
	}
}

// Limit is one limit in force, for people and programs.
type Limit struct {
	Name  string `json:"limit"` // its path in the file
	Value string `json:"value"`
	From  string `json:"from"`  // the file, or "default"
	Means string `json:"means"` // the limited thing
}

// Limits returns all limits in the order of the file.
func (p Policy) Limits() []Limit {
	list := []Limit{limit("deletion", p.Deletion, Follow,
		"when the provider has deleted the node: restore the machine, wait for an operator, or never")}
	for _, v := range p.versions() {
		list = append(list, limit(v.key, v.least, "none", "the oldest "+v.path))
	}
	for _, rule := range p.hosts() {
		given := ""
		if rule.allowed != nil {
			given = shownHosts(rule.allowed)
		}
		list = append(list, limit(rule.key, given, "any", rule.means))
	}
	list = append(list, limit("agentUpdates", word(p.AgentUpdates), allowed,
		"updates of the agent by a provider; not supported in this release"))
	for _, may := range p.permissions() {
		list = append(list, limit(may.key, word(may.given), word(&may.usual), may.means))
	}
	for _, kind := range p.Diagnose.kinds() {
		list = append(list, limit(kind.key, kind.given, allow, kind.means))
	}
	return append(list, limit(keyOfBundles, p.Diagnose.Key, "none",
		"the key that support bundles are encrypted to; without one they are refused"))
}

func limit(name, given, usual, means string) Limit {
	from := File
	if given == "" {
		from = "default"
	}
	return Limit{name, cmp.Or(given, usual), from, means}
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
