package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
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

// aliases are the names in other published versions of the configuration. They are made once.
var aliases = sync.OnceValue(func() []alias {
	same := func(name, setting string) alias {
		return alias{name: name, setting: setting, kind: aString}
	}
	return []alias{
		same("components.kubernetes", "kubernetes.version"),
		same("components.containerd", "containerd.version"),
		same("components.runc", "runc.version"),
		same("components.sandboxImage", "containerd.pauseImage"),
		same("networking.cniVersion", "cni.version"),
		same("networking.dnsServiceIP", "node.kubelet.dnsServiceIP"),
		{
			name: "node.kubelet.clusterFQDN", setting: "node.kubelet.serverURL",
			kind: aString, convert: serverURL,
		},
		same("azure.servicePrincipal.clientTenant", "azure.servicePrincipal.tenantId"),
		{
			name: "agent.enableDriftDetectionAndRemediation", setting: "agent.driftPolicy",
			kind: aBoolean, convert: driftPolicy,
		},
	}
})

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

// rename replaces every alias in the document by the setting it means. Both with different values
// are a problem.
func rename(doc map[string]any, r *report) {
	for _, a := range aliases() {
		parentPath, name := split(a.name)
		parent := lookup(doc, parentPath)
		v := parent[name]
		delete(parent, name)
		if v == nil {
			continue
		}
		if kindOf(v) != a.kind {
			r.add(a.name, "", fmt.Sprintf("must be %s, not %s", a.kind, kindOf(v)))
			continue
		}
		a.set(doc, a.value(fmt.Sprint(v)), r)
	}
	closeGroups(doc, r)
}

// write remembers that a setting was given by an alias.
func (r *report) write(a alias) {
	if r.written == nil {
		r.written = map[string]string{}
	}
	r.written[a.setting] = a.name
}

// groups are the objects that exist only for aliases. They are found once.
var groups = sync.OnceValue(func() []string {
	known := fields(reflect.TypeFor[Config]())
	return slices.DeleteFunc(aliasNames(""), func(group string) bool {
		return slices.ContainsFunc(known, func(f field) bool { return f.name == group })
	})
})

// closeGroups removes the objects that exist only for aliases; what is left in them is unknown.
func closeGroups(doc map[string]any, r *report) {
	for _, group := range groups() {
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

// aliasNames lists the names that aliases add to the object at a plain path.
func aliasNames(path string) []string {
	var names []string
	for _, a := range aliases() {
		rest := a.name
		if path != "" {
			var ok bool
			if rest, ok = strings.CutPrefix(a.name, path+"."); !ok {
				continue
			}
		}
		name, _, _ := strings.Cut(rest, ".")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (a alias) value(written string) string {
	if a.convert == nil {
		return written
	}
	return a.convert(written)
}

// set puts the value where the setting is read from.
func (a alias) set(doc map[string]any, value string, r *report) {
	parentPath, name := split(a.setting)
	parent := ensure(doc, parentPath)
	if parent == nil || value == "" {
		return
	}
	switch parent[name] {
	case nil, "":
		parent[name] = value
		r.write(a)
	case value:
	default:
		r.add(a.name, "",
			"means the same as "+a.setting+", which is set to another value: keep one")
	}
}

// lookup returns the object at a plain path; nil where something else is.
func lookup(doc map[string]any, path string) map[string]any {
	for name := range strings.SplitSeq(path, ".") {
		if path != "" {
			doc, _ = doc[name].(map[string]any)
		}
	}
	return doc
}

// ensure returns the object at a plain path, made where there is none; nil where something else is.
func ensure(doc map[string]any, path string) map[string]any {
	for name := range strings.SplitSeq(path, ".") {
		if doc[name] == nil {
			doc[name] = map[string]any{}
		}
		next, ok := doc[name].(map[string]any)
		if !ok {
			return nil
		}
		doc = next
	}
	return doc
}
