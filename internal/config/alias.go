package config

import (
	"fmt"
	"slices"
	"strings"
)

// alias is another published name of a setting.
type alias struct {
	// name is the path of the alias, setting the path of what it means.
	name, setting string
	// kind is the JSON type of the alias.
	kind kind
	// convert makes the setting's value of the alias's; nil when they are the same.
	convert func(string) string
}

// aliases are the names in other published versions of the configuration.
var aliases = []alias{
	{"components.kubernetes", "kubernetes.version", aString, nil},
	{"components.containerd", "containerd.version", aString, nil},
	{"components.runc", "runc.version", aString, nil},
	{"components.sandboxImage", "containerd.pauseImage", aString, nil},
	{"networking.cniVersion", "cni.version", aString, nil},
	{"networking.dnsServiceIP", "node.kubelet.dnsServiceIP", aString, nil},
	{"node.kubelet.clusterFQDN", "node.kubelet.serverURL", aString, serverURL},
	{"azure.servicePrincipal.clientTenant", "azure.servicePrincipal.tenantId", aString, nil},
	{"agent.enableDriftDetectionAndRemediation", "agent.driftPolicy", aBoolean, driftPolicy},
}

// serverURL makes a URL of a bare host name.
func serverURL(host string) string {
	if host == "" || strings.Contains(host, "://") {
		return host
	}
	return "https://" + host
}

func driftPolicy(remedy string) string {
	if remedy == "true" {
		return DriftRepair
	}
	return DriftOff
}

// groups are the objects that exist only for aliases.
var groups = []string{"components", "networking"}

// rename replaces every alias in the document by the setting it means. Both with different values
// are a problem. What is left in the objects that exist only for aliases is unknown.
func rename(doc map[string]any, r *report) {
	for _, a := range aliases {
		parentPath, name := split(a.name)
		parent := objectAt(doc, parentPath, false)
		v := parent[name]
		delete(parent, name)
		if v == nil {
			continue
		}
		if kindOf(v) != a.kind {
			r.add(a.name, "", fmt.Sprintf("must be %s, not %s", a.kind, kindOf(v)))
			continue
		}
		a.set(doc, fmt.Sprint(v), r)
	}
	for _, group := range groups {
		members, ok := doc[group].(map[string]any)
		if v := doc[group]; v != nil && !ok {
			r.add(group, "", fmt.Sprintf("must be an object, not %s", kindOf(v)))
		}
		for name := range members {
			r.add(member(group, name), "", unknown(group, name, nil))
		}
		delete(doc, group)
	}
}

// names lists the members that the object at a plain path can have, with those of aliases.
func names(path string, known []field) []string {
	list := fieldNames(known)
	for _, a := range aliases {
		rest, below := strings.CutPrefix("."+a.name, strings.TrimSuffix("."+path, ".")+".")
		name, _, _ := strings.Cut(rest, ".")
		if below && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

func fieldNames(known []field) []string {
	var list []string
	for _, f := range known {
		list = append(list, f.name)
	}
	return list
}

// set puts the value of the alias where the setting is read from.
func (a alias) set(doc map[string]any, value string, r *report) {
	if a.convert != nil {
		value = a.convert(value)
	}
	parentPath, name := split(a.setting)
	parent := objectAt(doc, parentPath, true)
	if parent == nil || value == "" {
		return
	}
	switch parent[name] {
	case nil, "":
		parent[name] = value
		if r.written == nil {
			r.written = map[string]string{}
		}
		r.written[a.setting] = a.name
	case value:
	default:
		r.add(a.name, "",
			"means the same as "+a.setting+", which is set to another value: keep one")
	}
}

// objectAt returns the object at a plain path, made if asked; nil where something else is.
func objectAt(doc map[string]any, path string, made bool) map[string]any {
	if path == "" {
		return doc
	}
	for name := range strings.SplitSeq(path, ".") {
		if made && doc != nil && doc[name] == nil {
			doc[name] = map[string]any{}
		}
		doc, _ = doc[name].(map[string]any)
	}
	return doc
}
