package flexnode

import (
	"slices"
	"strings"
)

// places pair each setting of the agent's configuration with that of the resource. A node's own
// layer has what adopt makes of the resource's, unless it is empty; a problem with the former names
// the latter. Where adopt is nil, ownLayer writes the setting itself.
var places = []struct {
	config, resource string
	adopt            func(any) any
}{
	{"agent.nodeName", "name", nil},
	{"agent.driftPolicy", "properties.driftPolicy", same},
	{"agent.driftPolicies", "properties.driftPolicies", same},
	{"agent.readyTimeout", "properties.upgradePolicy.readyTimeout", durations},
	{"agent.upgradePolicy", "properties.upgradePolicy", agentPolicy},
	{"agent.monitoring", "properties.monitoring", durations},
	{"network.metadata", "properties.network.metadata", same},
	{"continuousMonitoring", "properties.continuousMonitoring", same},
	{"azure.kubeletCredential", "properties.kubernetesAuth.kubeletCredential", same},
	{"azure", "properties.azureAuth", nil},
	{"node", "properties.nodeConfig", same},
	{"kubernetes.version", "properties.versions.kubernetes", same},
	{"containerd.version", "properties.versions.containerd", same},
	{"runc.version", "properties.versions.runc", same},
	{"cni.version", "properties.versions.cni", same},
	{"npd.version", "properties.versions.npd", same},
}

// adopted returns the settings of the agent's configuration that a node's resource has, with the
// versions that were chosen.
func adopted(n Node) object {
	properties := n.Desired
	properties.Versions = n.Chosen.Versions
	resource := object{"properties": objectOf(properties)}
	own := object{"azure": object{}, "node": object{}}
	for _, p := range places {
		if p.adopt == nil {
			continue
		}
		switch value := p.adopt(in(resource, strings.Split(p.resource, ".")...)).(type) {
		case nil:
		case object:
			if len(value) > 0 {
				put(own, p.config, value)
			}
		default:
			if value != "" && value != false {
				put(own, p.config, value)
			}
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

// durations returns a duration, or an object's, as the agent writes them. They were checked.
func durations(v any) any {
	switch v := v.(type) {
	case string:
		return goDuration(v)
	case object:
		for name, value := range v {
			if slices.Contains([]string{"deadline", "duration", "interval", "maintenanceWindow"}, name) {
				v[name] = durations(value)
			}
		}
		return without(v)
	}
	return v
}

// agentPolicy returns how a change reaches the node; Admit alone reads whether the node is paused.
func agentPolicy(v any) any {
	if policy, ok := v.(object); ok {
		delete(policy, "readyTimeout")
		delete(policy, "paused")
	}
	return durations(v)
}

// place translates a path of the agent's configuration into one of the resource.
func (n Node) place(path string) string {
	if rest, ok := strings.CutPrefix(path, "azure.servicePrincipal"); ok {
		_, at := principalOf(n.Desired.AzureAuth)
		return at + strings.ReplaceAll(rest, ".tenantId", ".clientTenant")
	}
	for _, p := range places {
		rest, ok := strings.CutPrefix(path, p.config)
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return p.resource + rest
		}
	}
	return "properties"
}
