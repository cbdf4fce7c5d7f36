// Package leftopen finds the settings that a configuration leaves open, with the defaults that an
// agent fills in. A provider stores them, so that agents with other defaults change nothing.
package leftopen

import (
	"cmp"
	"encoding/json"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// Find returns the settings that a document leaves open, with the defaults that an agent on any
// machine fills in, as a document without the versions; and the problems that the agent would find.
// The document was decoded into maps, lists, strings, json.Number, booleans and nil.
func Find(
	document map[string]any, host config.Host,
) (open map[string]any, problems config.Problems) {
	c, err := config.ParseDecoded(document, host)
	problems = config.AsProblems(err)
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
	whole, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c)
	if err != nil { // a Config always converts
		panic("internal error: " + err.Error())
	}
	return missing(document, whole), problems // secrets are never left open
}

// spell sets the defaults that are otherwise applied only where they are used, so that
// configurations from before these settings existed stay equal.
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

// or sets a setting that has the zero value.
func or[T comparable](setting *T, value T) { *setting = cmp.Or(*setting, value) }

// missing returns the fields of whole that document leaves open.
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
			if number, ok := value.(int64); ok {
				value = json.Number(strconv.FormatInt(number, 10))
			}
			found[name] = value
		}
	}
	return found
}

// KeptFromJoin returns the settings, besides versions and names, whose defaults depend on the
// applied configuration (config.Host.Before): setting them may change a machine that has joined.
func KeptFromJoin() [][]string {
	return [][]string{
		{"azure", "kubeletCredential"}, {"azure", "arc", "roles"},
	}
}
