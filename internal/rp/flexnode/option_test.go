package flexnode

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	apidoc "github.com/Azure/AKSFlexNode/docs/api"
)

// azOptions is the table of the az extension's options, which its _desired.py reads.
const azOptions = "../../../packaging/az/azext_aks_flex_node/options.json"

// options has a row for each setting that an owner writes, below properties: the option of az,
// which may have shorter forms, and its help. If several settings share an option, it is the one
// below the method of azureAuth. TestOptions writes them for packaging/az.
var options = []struct{ resource, option, help string }{
	{"azureAuth.servicePrincipal.clientId", "--client-id",
		"Client id of the service principal or of a user-assigned managed identity."},
	{"azureAuth.managedIdentity.clientId", "--client-id", ""},
	{"azureAuth.servicePrincipal.clientSecret", "--client-secret",
		"Secret of the service principal. Use @FILE to keep it out of process lists; `create` " +
			"prompts for it at a terminal. The machine tests it before use."},
	{"azureAuth.servicePrincipal.clientTenant", "--client-tenant",
		"Tenant of the service principal. Default: the cluster's."},
	{"azureAuth.servicePrincipal.secretExpires", "--secret-expires",
		"Day on which the secret ends in Entra ID, such as 2027-01-31. The machine warns two " +
			"weeks before."},
	{"azureAuth.arc.onboarding.secretExpires", "--secret-expires", ""},
	{"azureAuth.servicePrincipal.principalId", "--principal-id",
		"Object id of the identity, by which the cluster knows the node. Default: reported by its " +
			"machine; there is no default for a system-assigned managed identity."},
	{"azureAuth.managedIdentity.principalId", "--principal-id", ""},
	{"azureAuth.arc.principalId", "--principal-id", ""},
	{"azureAuth.arc.machineResourceId", "--arc-machine-id",
		"Resource id of the Arc machine. Default: the one of the node's name in the cluster's " +
			"resource group."},
	{"azureAuth.arc.onboarding.clientId", "--onboarding-client-id",
		"Client id of the service principal that connects the machine to Arc if it is not " +
			"connected yet. It is not the identity of the node."},
	{"azureAuth.arc.onboarding.clientSecret", "--onboarding-secret",
		"Secret of that service principal. Use @FILE; `create` prompts for it at a terminal. The " +
			"machine erases it once it has joined."},
	{"azureAuth.arc.onboarding.clientTenant", "--onboarding-tenant",
		"Tenant of that service principal. Default: the cluster's."},
	{"azureAuth.arc.autoRoleAssignment", "--auto-role-assignment",
		"The identity that connects the machine to Arc also assigns the roles that " +
			"--kubelet-credential token needs."},
	{"azureAuth.registries", "--registries",
		"Container registries from which kubelet pulls images with the identity, which needs " +
			"AcrPull: hosts or *.DOMAIN, with spaces between them. " + replaces},
	{"kubernetesAuth.useAzureAuth", "--use-azure-auth",
		"kubelet joins with the Azure identity instead of a bootstrap token."},
	{"kubernetesAuth.kubeletCredential", "--kubelet-credential",
		"Credential that kubelet presents to the cluster with --use-azure-auth."},
	{"versions.kubernetes", "--kubernetes-version -k", "Version of Kubernetes."},
	{"versions.containerd", "--containerd-version", "Version of containerd."},
	{"versions.runc", "--runc-version", "Version of runc."},
	{"versions.cni", "--cni-version", "Version of the CNI plugins."},
	{"versions.npd", "--npd-version", "Version of node-problem-detector."},
	{"versions.allowUnknown", "--allow-unknown",
		"Accept versions whose digests the provider does not know."},
	{"versions.allowVulnerable", "--allow-vulnerable",
		"Accept versions with which a container can break out."},
	{"nodeConfig.maxPods", "--max-pods -m", "Maximum number of pods on the " +
		"node."},
	{"nodeConfig.labels", "--labels",
		"Labels of the node, KEY=VALUE with spaces between them. " + replaces},
	{"nodeConfig.taints", "--node-taints",
		"Taints of the node, KEY=VALUE:EFFECT with commas between them. " + replaces},
	{"nodeConfig.kubelet", "--kubelet-config",
		"File with the settings of kubelet as JSON: kubeReserved, evictionHard, " +
			"imageGCHighThreshold, imageGCLowThreshold, verbosity, nodeIP."},
	{"network.metadata", "--metadata-access",
		"Whether pods reach the metadata service of a cloud, which gives tokens of the machine's " +
			"identity. Default: block."},
	{"continuousMonitoring", "--continuous-monitoring --follow",
		"The machine follows this resource, and applies changes by itself. Default: true. With false " +
			"it only joins; `update` asks for confirmation before disabling it."},
	{"driftPolicy", "--drift-policy", "What happens when the machine is not as configured."},
	{"driftPolicies", "--drift-policies",
		"The same for single kinds of things, KIND=POLICY with spaces between them: unit=repair " +
			"sysctl=off. " + replaces},
	{"upgradePolicy.drain", "--drain", "When pods are moved away before a change."},
	{"upgradePolicy.deadline", "--drain-deadline", "Maximum time to move them, such as PT15M."},
	{"upgradePolicy.drainOptions.force", "--drain-force",
		"Also delete pods without a controller. By default such a pod blocks the change."},
	{"upgradePolicy.drainOptions.deleteEmptyDir", "--drain-delete-empty-dir --drain-empty-dir",
		"Also move pods with an emptyDir volume, whose data is lost. Default: true."},
	{"upgradePolicy.readyTimeout", "--ready-timeout",
		"How long a node may take to become healthy before rollback, such as PT5M."},
	{"upgradePolicy.maintenanceWindow", "--maintenance-window",
		"When a change may start: days=Saturday,Sunday start=22:00 duration=PT4H " +
			"utcOffset=+01:00; '' is at any time."},
	{"monitoring.endpoint", "--poll-endpoint",
		"URL of the provider that the machine polls, or resourceManager. Default: the provider's " +
			"own."},
	{"monitoring.interval", "--poll-interval", "Mean time between two polls, such as PT30S."},
}

const replaces = "They replace all existing ones; '' removes all."

// withoutOption has the settings without a row in options.
var withoutOption = map[string]string{
	"azureAuth.method":                     "--auth-method",
	"upgradePolicy.paused":                 "the commands pause and resume",
	"azureAuth.arc.onboarding.principalId": "what enrols a machine is no identity of its node",
}

// groups has the headings of az for the options; the others are below Changes.
var groups = map[string]string{
	"azureAuth": "Authentication", "kubernetesAuth": "Authentication",
	"versions": "Node", "nodeConfig": "Node", "network": "Node",
}

// schema is a type of the API's document.
type schema struct {
	Ref        string `json:"$ref"`
	ReadOnly   bool
	Type       string
	Enum       []string
	Properties map[string]schema
}

// settingsOfAPI returns the schemas of the properties that an owner of a node sets, by path,
// including those with members of their own.
func settingsOfAPI(t *testing.T) map[string]schema {
	var doc struct{ Definitions map[string]schema }
	must(0, json.Unmarshal(apidoc.OpenAPI, &doc))
	all := map[string]schema{}
	var walk func(at string, s schema)
	walk = func(at string, s schema) {
		if s.Ref != "" {
			s = doc.Definitions[s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]]
		}
		all[at] = s
		for name, p := range s.Properties {
			if !p.ReadOnly {
				walk(strings.TrimPrefix(at+"."+name, "."), p)
			}
		}
	}
	walk("", doc.Definitions["FlexNodeConfigProperties"])
	delete(all, "")
	return all
}

// option is an option of az. Its type and values are those of the API.
type option struct {
	Places string   `json:"places"` // below properties
	Names  string   `json:"names"`
	Group  string   `json:"group"`
	Type   string   `json:"type"`
	Words  []string `json:"words,omitempty"`
	Help   string   `json:"help"`
}

// Every setting is in the reference of the API.
func TestSettingsAreDocumented(t *testing.T) {
	text := must(os.ReadFile("../../../docs/reference/api.md"))
	_, text, _ = bytes.Cut(text, []byte("\n## Properties\n"))
	for _, p := range options {
		name := p.resource[strings.LastIndex(p.resource, ".")+1:]
		if !bytes.Contains(text, []byte("`"+name+"`")) && !bytes.Contains(text, []byte("."+name+"`")) {
			t.Errorf("docs/reference/api.md, Properties: say what %s is", p.resource)
		}
	}
}

// Every setting of a flex node has an option of az, and every option a setting.
func TestOptions(t *testing.T) {
	settings := settingsOfAPI(t)
	missing := maps.Clone(settings)
	exists := func(resource string) {
		if _, ok := settings[resource]; !ok {
			t.Errorf("the API has no %s: add it to api/typespec/main.tsp, and run make openapi",
				resource)
		}
	}
	for _, p := range places {
		exists(p.resource)
	}
	all := map[string]option{}
	for _, p := range options {
		exists(p.resource)
		s := settings[p.resource]
		maps.DeleteFunc(missing, func(at string, _ schema) bool {
			return at == p.resource || strings.HasPrefix(at, p.resource+".")
		})
		name, _, _ := strings.Cut(p.option, " ")
		key := strings.ReplaceAll(strings.TrimPrefix(name, "--"), "-", "_")
		o := all[key]
		top, _, _ := strings.Cut(p.resource, ".")
		all[key] = option{strings.TrimSpace(o.Places + " " + p.resource), p.option,
			cmp.Or(groups[top], "Changes"), s.Type, s.Enum, cmp.Or(o.Help, p.help)}
		if all[key].Help == "" {
			t.Errorf("%s has no help", name)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(missing)) {
		if len(missing[at].Properties) == 0 && withoutOption[at] == "" {
			t.Errorf("%s has no option: add it to options", at)
		}
	}
	got := append(must(json.MarshalIndent(all, "", "  ")), '\n')
	if *update {
		must(0, os.WriteFile(azOptions, got, 0o644))
	}
	if diff := gocmp.Diff(string(must(os.ReadFile(azOptions))), string(got)); diff != "" {
		t.Errorf("az has other options (-want +got); run make golden:\n%s", diff)
	}
}
