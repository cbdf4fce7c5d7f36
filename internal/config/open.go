package config

import "reflect"

// Defaults is what Parse would fill in where a document leaves it open, whatever the machine, as a
// document; the versions are left out. The document was decoded into maps, lists, strings,
// json.Number, booleans and nil.
func Defaults(document map[string]any) map[string]any {
	_, open := spelled(document, &report{})
	return open
}

// FillAndCheck is Defaults of a document, and CheckObject of it with these filled in: it is read
// once for both.
func FillAndCheck(document map[string]any, host Host) (open map[string]any, problems Problems) {
	r := &report{}
	c, open := spelled(document, r)
	c.complete(host)
	return open, c.check(host, r)
}

// spelled is a document's configuration with every default that depends on no machine, and those
// that the document leaves open.
func spelled(document map[string]any, r *report) (Config, map[string]any) {
	c := defaults()
	doc := settingsOf(cloned(document), r)
	decode(doc, &c, r)
	c.complete(Host{})
	c.spell()
	return c, c.open(doc)
}

// open is what a configuration has and a document leaves open, without the versions.
func (c Config) open(doc map[string]any) map[string]any {
	for _, version := range c.versions() {
		*version = ""
	}
	open, _ := missing(doc, reflect.ValueOf(&c).Elem()).(map[string]any)
	return open
}

// spell writes down the defaults that are otherwise filled in where they are used: a configuration
// that leaves them open is the same as before there were any.
func (c *Config) spell() {
	or(&c.Network.Firewall, FirewallCheck)
	or(&c.Network.Metadata, MetadataBlock)
	or(&c.Agent.UpgradePolicy.Drain, DrainMinor)
	or(&c.Agent.UpgradePolicy.Deadline, defaultDeadline)
	c.Agent.UpgradePolicy.DrainOptions.DeleteEmptyDir =
		yes(c.Agent.UpgradePolicy.DrainOptions.DeleteEmptyDir)
	if w := c.Agent.UpgradePolicy.MaintenanceWindow; w != nil {
		or(&w.UTCOffset, "+00:00")
	}
}

// missing is what v has and a document leaves open; nil for nothing.
func missing(doc any, v reflect.Value) any {
	open := doc == nil || doc == ""
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		if v.Elem().Kind() == reflect.Struct {
			return missing(doc, v.Elem())
		}
		if open {
			return v.Elem().Interface() // what is set to false is set
		}
	case reflect.Struct:
		var found map[string]any
		for i, f := range fields(v.Type()) {
			found = with(found, f.name, missing(get(doc, f.name), v.Field(i)))
		}
		if found != nil {
			return found
		}
	case reflect.Map:
		var found map[string]any
		for name, next := range entries(v) {
			found = with(found, name, missing(get(doc, name), next))
		}
		if found != nil {
			return found
		}
	case reflect.String:
		if open && v.Len() > 0 && v.Type() != reflect.TypeFor[Secret]() {
			return v.String()
		}
	default:
		if open && !v.IsZero() {
			return v.Interface()
		}
	}
	return nil
}

// with is an object with one more member, unless that is nil; nil is an object without any.
func with(o map[string]any, name string, value any) map[string]any {
	if value == nil {
		return o
	}
	if o == nil {
		o = map[string]any{}
	}
	o[name] = value
	return o
}

// KeptFromJoin are the settings whose defaults depend on what was applied on a machine before
// (Host.Before), beside the versions and names: whoever spells them out for a machine that has
// joined may change it.
func KeptFromJoin() [][]string {
	return [][]string{
		{"azure", "kubeletCredential"}, {"azure", "arc", "roles"},
		{"node", "kubelet", "seccompDefault"}, {"node", "kubelet", "podPidsLimit"},
		{"node", "kubelet", "shutdownGracePeriod"},
		{"node", "kubelet", "shutdownGracePeriodCriticalPods"},
	}
}
