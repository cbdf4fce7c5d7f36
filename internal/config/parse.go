package config

import "reflect"

// Host is what a configuration takes from the machine it is for.
type Host struct {
	// HostName is the default of the Node's and the Arc machine's name.
	HostName string
	// Arch is amd64 or arm64.
	Arch string
}

// Parse reads a configuration: JSON of the form of Config or of the bundle {"config": {...}}, with aliases, and completes it. The
// error is of type Problems, and holds all of them; the Config is valid only without one.
func Parse(data []byte, host Host) (Config, []Warning, error) {
	c, warnings, problems := parse(data, host)
	if len(problems) > 0 {
		return Config{}, warnings, problems
	}
	return c, warnings, nil
}

// parse is Parse, with as much of the Config as could be read.
func parse(data []byte, host Host) (Config, []Warning, Problems) {
	r, c := &report{}, defaults()
	doc := readDocument(data, r)
	if doc == nil {
		return c, nil, r.sorted(c)
	}
	doc = unwrap(doc)
	rename(doc, r)
	decoder{r}.decode(doc, reflect.ValueOf(&c).Elem(), "")
	c.complete(host)
	applyRules(&c, r)
	for _, check := range []func(Config, *report){checkAuth, checkCA, checkNode, checkNetwork, checkDirs, checkArtifacts} {
		check(c, r)
	}
	checkVersions(c, host, r)
	r.need("azure.targetCluster.resourceId", c.Azure.TargetCluster.ResourceID != "", "must be set: the ARM id of the cluster")
	r.need("agent.nodeName", c.Agent.NodeName != "", "must be set: this machine has no host name")
	return c, r.warnings, r.sorted(c)
}

// unwrap returns the configuration in a bundle that holds nothing else.
func unwrap(doc *value) *value {
	if inner := doc.get("config"); inner != nil && inner.kind == anObject && len(doc.members) == 1 {
		return inner
	}
	return doc
}
