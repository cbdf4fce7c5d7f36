package flexnode

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/config/leftopen"
)

// Stand-ins for the secrets of a configuration that is checked.
const (
	anySecret = "checked"
	anyToken  = "abcdef.0123456789abcdef"
	// anyVersion stands in for Kubernetes' version while the cluster's is unknown.
	anyVersion = "1.34.4"
)

// NoDNS is the problem of a cluster whose DNS service has no known address. The address is not
// guessed: pods with a wrong one resolve no name.
const NoDNS = "The address of the cluster's DNS service is not known: the Service " +
	"kube-system/kube-dns does not exist, or the provider is not allowed to read it (see " +
	"rbac-provider.yaml). Set dnsServiceIP in the registration of the cluster."

// Limits of the settings of a Node.
const (
	maxNodeConfig = 8 << 10 // bytes, as JSON
	maxLabels     = 64
	maxTaints     = 16
	maxRegistries = 16
)

func (p *Problems) nodeConfig(c NodeConfig) {
	const at = "properties.nodeConfig"
	p.unless(len(c.Labels) <= maxLabels, at+".labels",
		"There are %d labels; at most %d are allowed.", len(c.Labels), maxLabels)
	p.unless(len(c.Taints) <= maxTaints, at+".taints",
		"There are %d taints; at most %d are allowed.", len(c.Taints), maxTaints)
	p.unless(len(encode(c)) <= maxNodeConfig, at, "It is larger than %d bytes.", maxNodeConfig)
}

// ARM's limits for tags, and our own in bytes, as JSON: every replica holds them in memory.
const (
	maxTags     = 50
	maxTagName  = 512
	maxTagValue = 256
	maxTagBytes = 64 << 10
)

// CheckTags checks the tags of a resource.
func CheckTags(tags map[string]string) Problems {
	var problems Problems
	problems.unless(len(tags) <= maxTags, "tags", "There are %d tags; at most %d are allowed.",
		len(tags), maxTags)
	for name, value := range tags {
		problems.unless(name != "" && utf8.RuneCountInString(name) <= maxTagName &&
			utf8.RuneCountInString(value) <= maxTagValue, "tags", "The name of the tag '%s' must "+
			"have 1 to %d characters, its value at most %d.", shorten(name), maxTagName, maxTagValue)
	}
	problems.unless(len(encode(tags)) <= maxTagBytes, "tags", "They are larger than %d bytes.",
		maxTagBytes)
	return problems
}

// checkNode applies the agent's own rules to the configuration that a node with an own layer would
// get. Problems are reported in terms of the resource.
func checkNode(n Node, own object, parent Parent) Problems {
	if n.Chosen.Versions.Kubernetes == "" {
		n.Chosen.Versions.Kubernetes = anyVersion
		own = ownLayer(n, parent.podNetwork())
	}
	_, problems := n.check(own, parent)
	return problems
}

// anyHost returns a host that stands in for a node's machine.
func anyHost() config.Host { return config.Host{HostName: "host", Arch: "amd64"} }

// check returns the settings that the configuration of a node with an own layer leaves open, and
// the problems that the agent finds in it, in terms of the resource. Stand-ins replace secrets and
// unknown facts.
func (n Node) check(own object, parent Parent) (open object, problems Problems) {
	facts, made, grants := parent.FactsLayer, placeholderFacts, Grants{ClientSecret: anySecret}
	if !n.Desired.KubernetesAuth.UseAzureAuth {
		grants.Token = anyToken
	}
	if facts == nil {
		made.Location = parent.Cluster.Location
		facts = FactsLayer(made, n.ClusterID())
	}
	whole := layered(own, parent.Defaults, facts, grants)
	if azure, ok := whole["azure"].(object); ok && azure["tenantId"] == nil {
		azure["tenantId"] = made.TenantID
	}
	open, found := leftopen.Find(whole, anyHost())
	problems.unless(textIn(whole, "node", "kubelet", "dnsServiceIP") != "", "properties", "%s", NoDNS)
	for _, p := range found {
		problems = append(problems, Problem{n.place(p.Path),
			config.Problem{Value: p.Value, Message: p.Message}.String()})
	}
	return open, problems
}

// CheckDefaults returns the problems that the operator's defaults would cause in every node.
func CheckDefaults(defaults map[string]any) []string {
	const id = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/g/providers/" +
		ClusterType + "/c/flexNodeConfig/n"
	n := Node{ID: id, Desired: complete(Desired{})}
	parent := Parent{Cluster: Cluster{Location: "x"}, Defaults: newLayer(copied(defaults))}
	var problems []string
	var c config.Config
	_ = json.Unmarshal(encode(defaults), &c) // the agent's own rules name what cannot be read
	for _, path := range c.SecretPaths() {
		problems = append(problems, path+" holds a secret, such as a user or password, which would be "+
			"visible to every caller of the provider")
	}
	for _, p := range checkNode(n, nil, parent) {
		problems = append(problems, p.Message)
	}
	return problems
}

// IsGUID reports whether a text is a GUID of 36 characters, without braces and prefix.
func IsGUID(s string) bool { return len(s) == 36 && uuid.Validate(s) == nil }

// matches returns a check of a whole value.
func matches(pattern string) func(string) bool {
	return regexp.MustCompile(`\A(?:` + pattern + `)\z`).MatchString
}

var (
	isLocation      = matches(`[A-Za-z0-9][A-Za-z0-9 ]{0,62}`)
	isFileName      = matches(`[A-Za-z0-9][A-Za-z0-9._-]{0,252}`)
	isServerURL     = matches(`https://[A-Za-z0-9.:\[\]-]+/?`)
	isConfigVersion = matches(`[0-9]{0,19}`)
	isConditionType = matches(`[A-Za-z]([A-Za-z0-9]{0,62})?`)
)

// placeholderCA stands for the CA of a cluster that was not reached. Its key was thrown away.
//
//go:embed placeholder.pem
var placeholderCA []byte

// placeholderFacts are valid facts in place of those of a cluster that was not reached.
var placeholderFacts = Facts{
	ServerURL:  "https://unknown.invalid",
	CACertData: base64.StdEncoding.EncodeToString(placeholderCA), DNSServiceIP: "10.0.0.10",
	TenantID: "00000000-0000-0000-0000-000000000000",
}

// IsAPIServerName reports whether clients of a cluster reach its API server by a name: the host of
// one of its URLs, a name of its Service default/kubernetes under any domain, or a local host name.
func IsAPIServerName(name string, urls ...string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || name == "kubernetes" ||
		strings.HasPrefix(name+".", "kubernetes.default.") ||
		slices.ContainsFunc(urls, func(text string) bool {
			u, err := url.Parse(text)
			return err == nil && u.Hostname() != "" &&
				strings.TrimSuffix(strings.ToLower(u.Hostname()), ".") == name
		})
}

// checkName rejects the name of a node whose serving certificate would pass for the API server's,
// and names that AKS gives to its own Nodes, which the provider may not change.
func checkName(id string, parent Parent) Problems {
	urls := []string{parent.Cluster.Properties.ServerURL,
		textIn(parent.FactsLayer.settings(), "node", "kubelet", "serverURL")}
	name := LastOf(id)
	if strings.HasPrefix(strings.ToLower(name), "aks") {
		return Problems{{"name", "A node cannot be called '" + shorten(name) + "': names that begin " +
			"with aks are reserved for Nodes that AKS manages. Use another name."}}
	}
	if IsAPIServerName(name, urls...) {
		return Problems{{"name", "A node cannot be called '" + shorten(name) + "': clients of the " +
			"cluster use that name for the API server or for themselves. Use another name."}}
	}
	return nil
}
