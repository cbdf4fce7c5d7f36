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
	AgentUpdates    *bool    `json:"agentUpdates,omitempty"` // a provider may update the agent
	Allow           Allow    `json:"allow,omitzero"`
	Diagnose        Diagnose `json:"diagnose,omitzero"`
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

// Hosts are the permitted hosts, by name or address without a port; nil allows any, [] none.
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
	Audiences       *bool `json:"audiences,omitempty"`
}

// Diagnose selects the diagnoses that a provider may request from the machine.
type Diagnose struct {
	// Doctor and SupportBundle are allow or refuse; default allow.
	Doctor        string `json:"doctor,omitempty"`
	SupportBundle string `json:"supportBundle,omitempty"`
	Key           string `json:"key,omitempty"` // the age recipient of support bundles, if any
}

const (
	allow        = "allow"
	keyOfBundles = "diagnose.key" // the path of Diagnose.Key
)

// Parse parses a policy. The error is of type config.Problems and names each problem by its path.
func Parse(data []byte) (Policy, error) {
	var p Policy
	if err := config.Decode(data, &p); err != nil {
		return Policy{}, err
	}
	var problems config.Problems
	check := func(path, value string, ok bool, message string) {
		if value != "" && !ok {
			problems = append(problems,
				config.Problem{Path: path, Value: fmt.Sprintf("%q", value), Message: message})
		}
	}
	_, err := age.ParseX25519Recipient(p.Diagnose.Key)
	check("deletion", p.Deletion, slices.Contains([]string{Follow, Confirm, Never}, p.Deletion),
		"must be follow, confirm or never")
	check(keyOfBundles, p.Diagnose.Key, err == nil, "must be a recipient of age: age1...")
	for key, hosts := range map[string][]string{"downloads": p.Hosts.Downloads,
		"endpoints": p.Hosts.Endpoints} {
		for i, host := range hosts {
			check(fmt.Sprintf("hosts.%s[%d]", key, i), host, isHost(host),
				"must be the name or IP address of a host, in lower case, without a port")
		}
	}
	for key, version := range map[string]string{
		"kubernetes": p.MinimumVersions.Kubernetes, "containerd": p.MinimumVersions.Containerd,
		"runc": p.MinimumVersions.Runc,
	} {
		_, ok := release.Parse(version)
		check("minimumVersions."+key, version, ok, "must be a version x.y.z")
	}
	for kind, given := range p.Diagnose.kinds() {
		check("diagnose."+kind, given, given == allow || given == "refuse", "must be allow or refuse")
	}
	if problems != nil {
		slices.SortStableFunc(problems, byPath)
		return Policy{}, problems
	}
	return p, nil
}

func byPath(a, b config.Problem) int { return strings.Compare(a.Path, b.Path) }

// isHost reports whether a text is a host as returned by hostOf.
func isHost(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || s != "" && s == strings.ToLower(s) && !strings.ContainsAny(s, "/:@?#[]{}% *")
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
	var list []Limit
	for _, l := range p.limits() {
		from := File
		if l.given == "" {
			from = "default"
		}
		list = append(list, Limit{l.key, cmp.Or(l.given, l.usual), from, l.means})
	}
	return list
}

func (p Policy) limits() []limit {
	return []limit{
		{key: "deletion", given: p.Deletion, usual: Follow, means: "when the provider has deleted the " +
			"node: restore the machine, wait for an operator, or never"},
		minimum("kubernetes", p.MinimumVersions.Kubernetes),
		minimum("containerd", p.MinimumVersions.Containerd),
		minimum("runc", p.MinimumVersions.Runc),
		hosts("downloads", p.Hosts.Downloads, "hosts that a configuration may name for downloads",
			"artifacts.mirror", "artifacts.mirrors", "artifacts.overrides", "kubernetes.urlTemplate",
			"runc.url", "azure.arc.package.url", image),
		hosts("endpoints", p.Hosts.Endpoints,
			"hosts that a configuration may name as Azure, provider and API server",
			"azure.resourceManagerEndpoint", "azure.authorityHost", registries,
			"agent.monitoring.endpoint", "node.kubelet.serverURL"),
		{key: "agentUpdates", given: word(p.AgentUpdates), usual: allowed,
			means: "updates of the agent by a provider; not supported in this release"},
		permission("overrides", p.Allow.Overrides, false,
			"other programs than the releases that this agent knows", "artifacts.overrides",
			"azure.arc.package"),
		permission("urlTemplates", p.Allow.URLTemplates, false,
			"other download locations of programs", "kubernetes.urlTemplate", "runc.url"),
		permission("mirrorChecksums", p.Allow.MirrorChecksums, false,
			"checksums that mirrors publish for their own files", "artifacts.trustMirrorChecksums"),
		permission("paths", p.Allow.Paths, false,
			"other directories, files and users of this machine", "paths", "agent.logDir",
			"agent.metrics.textfile", "artifacts.directory", "azure.cliUser"),
		permission(apiServer, p.Allow.APIServer, true, "another API server or CA than the applied "+
			"one, another Resource Manager to ask for them, or Azure Arc", "node.kubelet.serverURL",
			"node.kubelet.caCertData", "azure.resourceManagerEndpoint", "azure.arc.enabled"),
		permission("proxies", p.Allow.Proxies, true, "other proxies", "proxy"),
		audiences(p.Allow.Audiences),
		{key: "diagnose.doctor", given: p.Diagnose.Doctor, usual: allow,
			means: "the doctor report, if the provider requests it"},
		{key: "diagnose.supportBundle", given: p.Diagnose.SupportBundle, usual: allow,
			means: "a support bundle, if the provider requests it"},
		{key: keyOfBundles, given: p.Diagnose.Key, usual: "none",
			means: "the key that support bundles are encrypted to; without one they are refused"},
	}
}
