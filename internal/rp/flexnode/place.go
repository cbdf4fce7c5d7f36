package flexnode

import "strings"

// places maps the settings that an owner writes, below properties, to those of the agent's
// configuration. adopt makes the value of a node's own layer at config, unless it is empty; a
// problem at config is reported at resource. If adopt is nil, ownLayer writes the settings.
var places = []struct {
	resource, config string
	adopt            func(any) any
}{
	{"kubernetesAuth.kubeletCredential", "azure.kubeletCredential", same},
	{"azureAuth", "azure", nil},

	{"versions.kubernetes", "kubernetes.version", same},
	{"versions.containerd", "containerd.version", same},
	{"versions.runc", "runc.version", same},
	{"versions.cni", "cni.version", same},
	{"versions.npd", "npd.version", same},

	{"nodeConfig.maxPods", "node.maxPods", same},
	{"nodeConfig.labels", "node.labels", same},
	{"nodeConfig.taints", "node.taints", same},
	{"nodeConfig.kubelet", "node.kubelet", same},
	{"network.metadata", "network.metadata", same},

	{"continuousMonitoring", "continuousMonitoring", onlyTrue},
	{"driftPolicy", "agent.driftPolicy", same},
	{"driftPolicies", "agent.driftPolicies", same},
	{"upgradePolicy.drain", "agent.upgradePolicy.drain", same},
	{"upgradePolicy.deadline", "agent.upgradePolicy.deadline", duration},
	{"upgradePolicy.drainOptions.force", "agent.upgradePolicy.drainOptions.force", same},
	{"upgradePolicy.drainOptions.deleteEmptyDir",
		"agent.upgradePolicy.drainOptions.deleteEmptyDir", same},
	{"upgradePolicy.readyTimeout", "agent.readyTimeout", duration},
	{"upgradePolicy.maintenanceWindow", "agent.upgradePolicy.maintenanceWindow", window},
	{"monitoring.endpoint", "agent.monitoring.endpoint", same},
	{"monitoring.interval", "agent.monitoring.interval", duration},
}

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

// duration returns a checked duration in the agent's form: 15m; "" for none.
func duration(v any) any {
	text, _ := v.(string)
	d, ok := parseDuration(text)
	if !ok {
		return ""
	}
	return strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(d.String())
}

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
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return "properties." + p.resource + rest
		}
	}
	return "properties"
}
