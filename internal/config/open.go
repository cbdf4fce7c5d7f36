package config

// Defaults is what Parse would fill in where a document leaves it open, whatever the machine, as a
// document; the versions are left out. The document was decoded into maps, lists, strings,
// json.Number, booleans and nil.
func Defaults(document map[string]any) map[string]any {
	open, _ := FillAndCheck(document, Host{})
	return open
}

// FillAndCheck is Defaults of a document, and CheckObject of it with these filled in: it is read
// once for both.
func FillAndCheck(document map[string]any, host Host) (open map[string]any, problems Problems) {
	r := &report{}
	c := defaults()
	doc := settingsOf(cloned(document), r)
	decode(doc, &c, r)
	c.complete(Host{})
	c.spell()
	open = c.open(doc)
	c.complete(host)
	return open, c.check(host, r)
}

// open is what a configuration has and a document leaves open, without the versions.
func (c Config) open(doc map[string]any) map[string]any {
	for _, version := range c.versions() {
		*version = ""
	}
	whole, _ := c.redacted() // a Config always encodes; a secret is never left open
	return missing(doc, whole)
}

// spell writes down the defaults that are otherwise filled in where they are used: a configuration
// that leaves them open is the same as before there were any.
func (c *Config) spell() {
	or(&c.Network.Firewall, FirewallCheck)
	or(&c.Network.Metadata, MetadataBlock)
	or(&c.Agent.UpgradePolicy.Drain, DrainMinor)
	or(&c.Agent.UpgradePolicy.Deadline, defaultDeadline)
	or(&c.Agent.UpgradePolicy.DrainOptions.DeleteEmptyDir, new(true))
	if w := c.Agent.UpgradePolicy.MaintenanceWindow; w != nil {
		or(&w.UTCOffset, "+00:00")
	}
}

// missing is what an object has and a document leaves open; nil for nothing.
func missing(doc any, whole map[string]any) map[string]any {
	var found map[string]any
	for name, value := range whole {
		given := get(doc, name)
		if inner, ok := value.(map[string]any); ok {
			below := missing(given, inner)
			if below == nil {
				continue
			}
			value = below
		} else if value == "" || given != nil && given != "" {
			continue
		}
		if found == nil {
			found = map[string]any{}
		}
		found[name] = value
	}
	return found
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
