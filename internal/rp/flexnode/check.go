package flexnode

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/config/leftopen"
)

// The secrets that a configuration is checked with.
const (
	anySecret = "checked"
	anyToken  = "abcdef.0123456789abcdef"
	// anyVersion is checked while that of the cluster is not known.
	anyVersion = "1.34.4"
)

// NoDNS tells what to do where the address of a cluster's DNS service is unknown. It is not
// guessed: pods that ask a wrong one resolve no name.
const NoDNS = "The address of the cluster's DNS service is not known: there is no Service " +
	"kube-system/kube-dns, or the provider may not read it (rbac-provider.yaml allows it). Set " +
	"dnsServiceIP in the registration of the cluster."

// Bounds of what an owner may want of a Node.
const (
	maxNodeConfig = 8 << 10 // bytes, as JSON
	maxLabels     = 64
	maxTaints     = 16
	maxRegistries = 16
)

func (p *Problems) nodeConfig(c api.NodeConfig) {
	const at = "properties.nodeConfig"
	p.unless(len(c.Labels) <= maxLabels, at+".labels",
		"There are %d labels; at most %d are allowed.", len(c.Labels), maxLabels)
	p.unless(len(c.Taints) <= maxTaints, at+".taints",
		"There are %d taints; at most %d are allowed.", len(c.Taints), maxTaints)
	text, err := json.Marshal(c)
	p.unless(err == nil && len(text) <= maxNodeConfig, at, "It is larger than %d bytes.",
		maxNodeConfig)
}

// ARM's limits for tags.
const (
	maxTags     = 50
	maxTagName  = 512
	maxTagValue = 256
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
	return problems
}

// checkNode has the agent's own rules check the configuration that a node with an own layer would
// get, so that what is accepted here is accepted there. Problems are reported in terms of the
// resource.
func checkNode(n Node, own json.RawMessage, parent Parent) Problems {
	if n.Chosen.Versions.Kubernetes == "" {
		n.Chosen.Versions.Kubernetes = anyVersion
		own = encode(ownLayer(n, parent.podNetwork()))
	}
	settings, err := readObject(own)
	if err != nil {
		return Problems{{"properties", "internal error: " + err.Error()}}
	}
	whole := checkedConfig(n, settings, parent, anyGrants(n))
	_, found := leftopen.Find(whole, anyHost())
	return n.told(whole, found)
}

// anyHost is a machine that configurations are checked for.
func anyHost() config.Host { return config.Host{HostName: "host", Arch: "amd64"} }

// told are the problems of a node's configuration in terms of the resource.
func (n Node) told(whole object, found config.Problems) Problems {
	var problems Problems
	problems.unless(textIn(whole, "node", "kubelet", "dnsServiceIP") != "", "properties", "%s", NoDNS)
	for _, p := range found {
		message := p.Message
		if p.Value != "" {
			message = p.Value + " is not allowed: " + message
		}
		problems = append(problems, Problem{n.place(p.Path), message})
	}
	return problems
}

// anyGrants are secrets that a node with those of its methods may have.
func anyGrants(n Node) Grants {
	g := Grants{ClientSecret: anySecret}
	if !n.Desired.KubernetesAuth.UseAzureAuth {
		g.Token = anyToken
	}
	return g
}

// checkedConfig is the configuration of a node that is to be checked. What is not known of its
// cluster yet is made up.
func checkedConfig(n Node, own object, parent Parent, g Grants) object {
	facts := parent.FactsLayer
	made := placeholderFacts()
	if facts == nil {
		made.Location = parent.Cluster.Location
		facts = FactsLayer(made, clusterID(n.ID))
	}
	whole := layered(own, parent.Defaults, facts, g)
	if azure, ok := whole["azure"].(object); ok && azure["tenantId"] == nil {
		azure["tenantId"] = made.TenantID
	}
	return whole
}

// clusterID is the id of the cluster that a node's id lies below, in the same casing.
func clusterID(nodeID string) string {
	parts := strings.Split(nodeID, "/")
	return strings.Join(parts[:max(len(parts)-2, 0)], "/")
}

// places are where settings of the agent's configuration are in the resource.
var places = []struct{ config, resource string }{
	{"agent.nodeName", "name"},
	{"agent.driftPolicy", "properties.driftPolicy"},
	{"agent.driftPolicies", "properties.driftPolicies"},
	{"agent.readyTimeout", "properties.upgradePolicy.readyTimeout"},
	{"agent.upgradePolicy", "properties.upgradePolicy"},
	{"agent.monitoring", "properties.monitoring"},
	{"network.metadata", "properties.network.metadata"},
	{"azure.kubeletCredential", "properties.kubernetesAuth.kubeletCredential"},
	{"node", "properties.nodeConfig"},
	{"azure", "properties.azureAuth"},
	{"kubernetes.version", "properties.versions.kubernetes"},
	{"containerd.version", "properties.versions.containerd"},
	{"runc.version", "properties.versions.runc"},
	{"cni.version", "properties.versions.cni"},
	{"npd.version", "properties.versions.npd"},
}

// place translates a path of the agent's configuration into one of the resource.
func (n Node) place(path string) string {
	if rest, ok := strings.CutPrefix(path, "azure.servicePrincipal"); ok {
		_, at := principalOf(n.Desired.AzureAuth)
		return at + strings.ReplaceAll(rest, ".tenantId", ".clientTenant")
	}
	for _, t := range places {
		rest, ok := strings.CutPrefix(path, t.config)
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return t.resource + rest
		}
	}
	return "properties"
}

// CheckDefaults lists what would be wrong with every node because of the operator's defaults.
func CheckDefaults(defaults map[string]any) []string {
	const id = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/g/providers/" +
		ClusterType + "/c/flexNodeConfig/n"
	n := Node{ID: id, Desired: complete(api.Desired{})}
	parent := Parent{Cluster: Cluster{Location: "x"}, Defaults: DefaultsLayer(defaults)}
	problems := secretsIn(defaults)
	for _, p := range checkNode(n, OwnLayer(n), parent) {
		problems = append(problems, p.Message)
	}
	return problems
}

// secretsIn lists the secrets in the operator's defaults. They are not sealed, and every caller who
// may read a node is shown them.
func secretsIn(defaults map[string]any) (problems []string) {
	var c config.Config
	_ = json.Unmarshal(encode(defaults), &c) // the agent's own rules name what cannot be read
	for _, path := range c.SecretPaths() {
		problems = append(problems, path+" holds a secret, such as a user or password, which every "+
			"caller of the provider would be shown")
	}
	return problems
}
