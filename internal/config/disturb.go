package config

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// moving are the settings of the API server's address and CA. They restart kubelet and disturb
// nothing all the same: a node that is not told them is cut off.
var moving = []string{"node.kubelet.serverURL", "node.kubelet.caCertData"}

// undisturbing are the settings that an agent applies without a restart and without a drain, each
// with all below it. Every other one disturbs the node's pods; flexnode.TestUndisturbing holds this
// against the agent's plan.
var undisturbing = []string{
	"agent", "azure", "continuousMonitoring", "network", "node.labels", "node.taints",
}

// Disturbing returns the differences between two configurations for which an agent restarts or
// drains. With the drain policy always it drains for each of them.
func Disturbing(from, to map[string]any) []Difference {
	agent, _ := to["agent"].(map[string]any)
	policy, _ := agent["upgradePolicy"].(map[string]any)
	quiet := slices.Clone(moving)
	if policy["drain"] != DrainAlways {
		quiet = append(quiet, undisturbing...)
	}
	return slices.DeleteFunc(Differences(from, to), func(d Difference) bool {
		return slices.ContainsFunc(quiet, func(at string) bool { return Below(d.Path, at) })
	})
}

// Below reports whether a path is a setting or below it.
func Below(path, setting string) bool {
	rest, ok := strings.CutPrefix(path, setting)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Disturbs reports whether an agent restarts or drains to get from one configuration to another.
func (c Config) Disturbs(to Config) bool {
	before, err := c.redacted()
	after, wrong := to.redacted()
	return err != nil || wrong != nil || len(Disturbing(before, after)) > 0
}

// Disruption returns the time that an agent takes at most to drain a node and to prove that it is
// healthy after a change.
func (a Agent) Disruption() time.Duration {
	return a.UpgradePolicy.DrainDeadline() + duration(cmp.Or(a.ReadyTimeout, defaultReadyTimeout))
}
