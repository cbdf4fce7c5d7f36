package flexnode

import "strings"

// places maps each setting that an owner writes, below properties, to one of the agent's
// configuration. adopt makes the value of a node's own layer at config, unless it is empty; a
// problem at config is reported at resource. If adopt is nil, ownLayer writes the setting. option
// is the option of az, and may have shorter forms; if several settings share it, it is the one
// below the method of azureAuth. TestOptions writes them for packaging/az.
var places = []struct {
	resource, config string
	adopt            func(any) any
	option, help     string
}{
	{"azureAuth.servicePrincipal.clientId", "", nil, "--client-id",
		"Client id of the service principal or of a user-assigned managed identity."},
	{"azureAuth.managedIdentity.clientId", "", nil, "--client-id", ""},
	{"azureAuth.servicePrincipal.clientSecret", "", nil, "--client-secret",
		"Secret of the service principal. Use @FILE to keep it out of process lists; `create` " +
			"prompts for it at a terminal. The machine tests it before use."},
	{"azureAuth.servicePrincipal.clientTenant", "", nil, "--client-tenant",
		"Tenant of the service principal. Default: the cluster's."},
	{"azureAuth.servicePrincipal.secretExpires", "", nil, "--secret-expires",
		"Day on which the secret ends in Entra ID, such as 2027-01-31. The machine warns two " +
			"weeks before."},
	{"azureAuth.arc.onboarding.secretExpires", "", nil, "--secret-expires", ""},
	{"azureAuth.servicePrincipal.principalId", "", nil, "--principal-id",
		"Object id of the identity, by which the cluster knows the node. Default: reported by its " +
			"machine; there is no default for a system-assigned managed identity."},
	{"azureAuth.managedIdentity.principalId", "", nil, "--principal-id", ""},
	{"azureAuth.arc.principalId", "", nil, "--principal-id", ""},
	{"azureAuth.arc.machineResourceId", "", nil, "--arc-machine-id",
		"Resource id of the Arc machine. Default: the one of the node's name in the cluster's " +
			"resource group."},
	{"azureAuth.arc.onboarding.clientId", "", nil, "--onboarding-client-id",
		"Client id of the service principal that connects the machine to Arc if it is not " +
			"connected yet. It is not the identity of the node."},
	{"azureAuth.arc.onboarding.clientSecret", "", nil, "--onboarding-secret",
		"Secret of that service principal. Use @FILE; `create` prompts for it at a terminal. The " +
			"machine erases it once it has joined."},
	{"azureAuth.arc.onboarding.clientTenant", "", nil, "--onboarding-tenant",
		"Tenant of that service principal. Default: the cluster's."},
	{"azureAuth.arc.autoRoleAssignment", "", nil, "--auto-role-assignment",
		"The identity that connects the machine to Arc also assigns the roles that " +
			"--kubelet-credential token needs."},
	{"azureAuth.registries", "", nil, "--registries",
		"Container registries from which kubelet pulls images with the identity, which needs " +
			"AcrPull: hosts or *.DOMAIN, with spaces between them. " + replaces},
	{"kubernetesAuth.useAzureAuth", "", nil, "--use-azure-auth",
		"kubelet joins with the Azure identity instead of a bootstrap token."},
	{"kubernetesAuth.kubeletCredential", "azure.kubeletCredential", same, "--kubelet-credential",
		"Credential that kubelet presents to the cluster with --use-azure-auth."},
	{"azureAuth", "azure", nil, "", ""},

	{"versions.kubernetes", "kubernetes.version", same, "--kubernetes-version -k",
		"Version of Kubernetes."},
	{"versions.containerd", "containerd.version", same, "--containerd-version",
		"Version of containerd."},
	{"versions.runc", "runc.version", same, "--runc-version", "Version of runc."},
	{"versions.cni", "cni.version", same, "--cni-version", "Version of the CNI plugins."},
	{"versions.npd", "npd.version", same, "--npd-version", "Version of node-problem-detector."},
	{"versions.allowUnknown", "", nil, "--allow-unknown",
		"Accept versions whose digests the provider does not know."},
	{"versions.allowVulnerable", "", nil, "--allow-vulnerable",
		"Accept versions with which a container can break out."},

	{"nodeConfig.maxPods", "node.maxPods", same, "--max-pods -m", "Maximum number of pods on the " +
		"node."},
	{"nodeConfig.labels", "node.labels", same, "--labels",
		"Labels of the node, KEY=VALUE with spaces between them. " + replaces},
	{"nodeConfig.taints", "node.taints", same, "--node-taints",
		"Taints of the node, KEY=VALUE:EFFECT with commas between them. " + replaces},
	{"nodeConfig.kubelet", "node.kubelet", same, "--kubelet-config",
		"File with the settings of kubelet as JSON: kubeReserved, evictionHard, " +
			"imageGCHighThreshold, imageGCLowThreshold, verbosity, nodeIP."},
	{"network.metadata", "network.metadata", same, "--metadata-access",
		"Whether pods reach the metadata service of a cloud, which gives tokens of the machine's " +
			"identity. Default: block."},

	{"continuousMonitoring", "continuousMonitoring", onlyTrue, "--continuous-monitoring --follow",
		"The machine follows this resource, and applies changes by itself. Default: true. With false " +
			"it only joins; `update` asks for confirmation before disabling it."},
	{"driftPolicy", "agent.driftPolicy", same, "--drift-policy",
		"What happens when the machine is not as configured."},
	{"driftPolicies", "agent.driftPolicies", same, "--drift-policies",
		"The same for single kinds of things, KIND=POLICY with spaces between them: unit=repair " +
			"sysctl=off. " + replaces},
	{"upgradePolicy.drain", "agent.upgradePolicy.drain", same, "--drain",
		"When pods are moved away before a change."},
	{"upgradePolicy.deadline", "agent.upgradePolicy.deadline", duration, "--drain-deadline",
		"Maximum time to move them, such as PT15M."},
	{"upgradePolicy.drainOptions.force", "agent.upgradePolicy.drainOptions.force", same,
		"--drain-force",
		"Also delete pods without a controller. By default such a pod blocks the change."},
	{"upgradePolicy.drainOptions.deleteEmptyDir", "agent.upgradePolicy.drainOptions.deleteEmptyDir",
		same, "--drain-delete-empty-dir --drain-empty-dir",
		"Also move pods with an emptyDir volume, whose data is lost. Default: true."},
	{"upgradePolicy.readyTimeout", "agent.readyTimeout", duration, "--ready-timeout",
		"How long a node may take to become healthy before rollback, such as PT5M."},
	{"upgradePolicy.maintenanceWindow", "agent.upgradePolicy.maintenanceWindow", window,
		"--maintenance-window",
		"When a change may start: days=Saturday,Sunday start=22:00 duration=PT4H " +
			"utcOffset=+01:00; '' is at any time."},
	{"monitoring.endpoint", "agent.monitoring.endpoint", same, "--poll-endpoint",
		"URL of the provider that the machine polls, or resourceManager. Default: the provider's " +
			"own."},
	{"monitoring.interval", "agent.monitoring.interval", duration, "--poll-interval",
		"Mean time between two polls, such as PT30S."},
}

const replaces = "They replace all existing ones; '' removes all."

// adopted returns the agent's settings that follow from a node's resource, with the chosen
// versions.
func adopted(n Node) object {
	properties := n.Desired
	properties.Versions = n.Chosen.Versions
	resource := objectOf(properties)
	own := object{"azure": object{}, "node": object{}}
	for _, p := range places {
		if p.adopt == nil {
			continue
		}
		value := p.adopt(in(resource, strings.Split(p.resource, ".")...))
		if inner, ok := value.(object); value != nil && value != "" && (!ok || len(inner) > 0) {
			put(own, p.config, value)
		}
	}
	return own
}

// put sets the value at a path of an object.
func put(o object, path string, value any) {
	names := strings.Split(path, ".")
	last := len(names) - 1
	for _, name := range names[:last] {
		inner, ok := o[name].(object)
		if !ok {
			inner = object{}
			o[name] = inner
		}
		o = inner
	}
	o[names[last]] = value
}

func same(v any) any { return v }

func onlyTrue(v any) any {
	if v == true {
		return v
	}
	return nil
}

// duration returns a checked duration in the agent's form.
func duration(v any) any {
	text, _ := v.(string)
	return goDuration(text)
}

// window returns a maintenance window as the agent writes it.
func window(v any) any {
	o, ok := v.(object)
	if !ok {
		return nil
	}
	o["duration"] = duration(o["duration"])
	return without(o)
}

// place translates a path of the agent's configuration into one of the resource.
func (n Node) place(path string) string {
	if rest, ok := strings.CutPrefix(path, "azure.servicePrincipal"); ok {
		_, at := principalOf(n.Desired.AzureAuth)
		return at + strings.ReplaceAll(rest, ".tenantId", ".clientTenant")
	}
	if path == "agent.nodeName" {
		return "name"
	}
	for _, p := range places {
		rest, ok := strings.CutPrefix(path, p.config)
		if ok && p.config != "" && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return "properties." + p.resource + rest
		}
	}
	return "properties"
}
