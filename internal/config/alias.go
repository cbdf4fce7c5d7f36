package config

import (
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
func rename(doc *value, r *report) {
	for _, a := range aliases() {
		parentPath, name := split(a.name)
		parent := lookup(doc, parentPath)
		v := parent.get(name)
		if v == nil {
			continue
		}
		parent.remove(name)
		if v.kind == aNull {
			continue
		}
		if v.kind != a.kind {
			r.add(a.name, "", "must be "+string(a.kind)+", not "+string(v.kind))
			continue
		}
		a.set(doc, &value{kind: aString, text: a.value(v.text)}, r)
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
func closeGroups(doc *value, r *report) {
	for _, group := range groups() {
		if v := doc.get(group); v != nil {
			if v.kind != anObject && v.kind != aNull {
				r.add(group, "", "must be an object, not "+string(v.kind))
			}
			for _, m := range v.members {
				r.add(member(group, m.name), "", unknown(group, m.name, nil))
			}
			doc.remove(group)
		}
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
func (a alias) set(doc, v *value, r *report) {
	parentPath, name := split(a.setting)
	parent := ensure(doc, parentPath)
	if parent == nil || v.text == "" {
		return
	}
	switch there := parent.get(name); {
	case there == nil || there.kind == aNull || (there.kind == aString && there.text == ""):
		parent.remove(name)
		parent.members = append(parent.members, entry{name: name, value: v})
		r.write(a)
	case there.kind != aString || there.text != v.text:
		r.add(a.name, "",
			"means the same as "+a.setting+", which is set to another value: keep one")
	}
}

// lookup returns the object at a plain path, or nil.
func lookup(doc *value, path string) *value {
	for name := range strings.SplitSeq(path, ".") {
		if path != "" {
			doc = doc.get(name)
		}
	}
	return doc
}

// ensure returns the object at a plain path, made where there is none; nil where something else is.
func ensure(doc *value, path string) *value {
	for name := range strings.SplitSeq(path, ".") {
		next := doc.get(name)
		if next == nil || next.kind == aNull {
			doc.remove(name)
			next = &value{kind: anObject}
			doc.members = append(doc.members, entry{name: name, value: next})
		}
		if next.kind != anObject {
			return nil
		}
		doc = next
	}
	return doc
}
