// Package leftopen says what an agent fills in where a configuration leaves it open. A provider
// writes that down, so that an agent with other defaults changes nothing.
package leftopen

import (
	"cmp"
	"maps"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// Find returns what an agent would fill in where a document leaves it open, whatever the machine,
// as a document without the versions; and the problems that it would find. The document was decoded
// into maps, lists, strings, json.Number, booleans and nil.
func Find(
	document map[string]any, host config.Host,
) (open map[string]any, problems config.Problems) {
	document = cloned(document)
	c, problems := config.ParseDecoded(document, host)
	spell(&c)
	for _, ofMachine := range []*string{
		&c.Agent.NodeName, &c.Kubernetes.Version, &c.Containerd.Version, &c.Runc.Version,
		&c.CNI.Version, &c.NPD.Version,
	} {
		*ofMachine = ""
	}
	if c.Azure.Arc != nil {
		c.Azure.Arc.MachineName = ""
	}
	whole, err := c.Redacted() // secrets are never left open
	if err != nil {            // a Config always encodes
		panic("internal error: " + err.Error())
	}
	return missing(document, whole), problems
}

// cloned returns a copy of a document. Lists are not copied: only objects are changed.
func cloned(o map[string]any) map[string]any {
	o = maps.Clone(o)
	for name, v := range o {
		if inner, ok := v.(map[string]any); ok {
			o[name] = cloned(inner)
		}
	}
	return o
}

// spell writes down the defaults that are otherwise filled in where they are used: a configuration
// that leaves them open is the same as before there were any.
func spell(c *config.Config) {
	or(&c.Network.Firewall, config.FirewallCheck)
	or(&c.Network.Metadata, config.MetadataBlock)
	policy := &c.Agent.UpgradePolicy
	or(&policy.Drain, config.DrainMinor)
	or(&policy.Deadline, config.DefaultDeadline)
	or(&policy.DrainOptions.DeleteEmptyDir, new(true))
	if w := policy.MaintenanceWindow; w != nil {
		or(&w.UTCOffset, "+00:00")
	}
}

// or sets what is not set.
func or[T comparable](setting *T, value T) { *setting = cmp.Or(*setting, value) }

// missing returns the fields that an object has and a document leaves open.
func missing(document, whole map[string]any) map[string]any {
	found := map[string]any{}
	for name, value := range whole {
		given := document[name]
		if inner, ok := value.(map[string]any); ok {
			said, _ := given.(map[string]any)
			if below := missing(said, inner); len(below) > 0 {
				found[name] = below
			}
		} else if value != "" && (given == nil || given == "") {
			found[name] = value
		}
	}
	return found
}

// KeptFromJoin are the settings whose defaults depend on what was applied on a machine before
// (config.Host.Before), beside the versions and names: a configuration that sets them for a machine
// that has joined may change it.
func KeptFromJoin() [][]string {
	return [][]string{
		{"azure", "kubeletCredential"}, {"azure", "arc", "roles"},
	}
}
