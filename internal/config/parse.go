package config

// Host is what a configuration takes from the machine it is for.
type Host struct {
	// HostName is the default of the Node's and the Arc machine's name.
	HostName string
	// Arch is amd64 or arm64.
	Arch string
	// Before is the configuration that is applied on this machine; nil when there is none. What a
	// document leaves open and was resolved then is taken from it: the five versions,
	// azure.kubeletCredential, azure.arc.roles, azure.arc.machineName, agent.nodeName, and those of
	// node.kubelet that protect the machine and its pods (completeSafety).
	Before *Config
}

// Parse reads a configuration: JSON of the form of Config or of the bundle {"config": {...}}, which
// may say what it is from (ResourceOf), with aliases, and completes it. kubernetes.version may be
// left open: then it is "", as are the versions whose defaults depend on it, and the caller chooses
// (release.KubernetesFor, WithKubernetes). The error is of
// type Problems, and holds all of them; the Config is valid only without one.
func Parse(data []byte, host Host) (Config, []Warning, error) {
	c, warnings, problems := parse(data, host)
	if len(problems) > 0 {
		return Config{}, warnings, problems
	}
	return c, warnings, nil
}

// CheckObject returns the problems that Parse would find in a document that was decoded into maps,
// lists, strings, json.Number, booleans and nil.
func CheckObject(o map[string]any, host Host) Problems {
	_, _, problems := parseDocument(cloned(o), host, &report{})
	return problems
}

// parse is Parse, with as much of the Config as could be read.
func parse(data []byte, host Host) (Config, []Warning, Problems) {
	r := &report{}
	return parseDocument(readDocument(data, r), host, r)
}

// parseDocument parses a document that was read.
func parseDocument(doc map[string]any, host Host, r *report) (Config, []Warning, Problems) {
	c := defaults()
	doc = settingsOf(doc, r)
	c.keepVersions(host.Before)
	decode(doc, &c, r)
	c.complete(host)
	problems := c.check(host, r)
	return c, r.warnings, problems
}

// check applies every rule to a complete configuration, and returns all problems.
func (c Config) check(host Host, r *report) Problems {
	applyRules(&c, r)
	for _, check := range []func(Config, *report){
		checkAuth, checkCA, checkNode, checkWindow, checkNetwork, checkDirs, checkArtifacts, warnIdle,
	} {
		check(c, r)
	}
	checkVersions(c, host, r)
	r.need("azure.targetCluster.resourceId", c.Azure.TargetCluster.ResourceID != "",
		"must be set: the ARM id of the cluster")
	r.need("agent.nodeName", c.Agent.NodeName != "", "must be set: this machine has no host name")
	return r.sorted(c)
}

// settingsOf is the object in a document that holds the settings, by their own names.
func settingsOf(doc map[string]any, r *report) map[string]any {
	doc, origin := unwrap(doc, r)
	readResource(origin, r)
	rename(doc, r)
	return doc
}

// warnIdle warns of settings that are part of the configuration and have no effect in this release.
func warnIdle(c Config, r *report) {
	const idle = "has no effect yet: the agent of this release does not act on it"
	if c.Azure.TargetAgentPoolName != "" {
		r.warn("azure.targetAgentPoolName", idle)
	}
}
