package config

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Difference is a setting in which two configurations differ. From and To are nil if unset.
type Difference struct {
	Path string  `json:"path"`
	From *string `json:"from"`
	To   *string `json:"to"`
}

// Differences returns the differences to another configuration, ordered by path, without secrets.
func (c Config) Differences(to Config) []Difference {
	before, after, was := c.Redacted(), to.Redacted(), c.secrets()
	for path, secret := range to.secrets() {
		if former := was[path]; former != "" && secret != former {
			put(after, path, secret.String()+", another one")
		}
	}
	return Differences(before, after)
}

func (c Config) secrets() map[string]Secret {
	found := map[string]Secret{}
	for _, l := range leaves(&c) {
		if l.value.Type() == reflect.TypeFor[Secret]() && l.value.Len() > 0 {
			found[l.path()] = l.value.Interface().(Secret)
		}
	}
	return found
}

// Redacted returns the configuration as a JSON object, with secrets redacted.
func (c Config) Redacted() map[string]any {
	hidden, err := json.Marshal(c)
	if err != nil { // a Config always encodes
		panic("internal error: " + err.Error())
	}
	doc, _ := decodeObject(hidden)
	return doc
}

// Differences returns the differences of two documents, ordered by path. A list is one value.
func Differences(from, to map[string]any) []Difference {
	list := differences(nil, "", from, to)
	slices.SortFunc(list, func(a, b Difference) int { return strings.Compare(a.Path, b.Path) })
	return list
}

func differences(list []Difference, at string, from, to map[string]any) []Difference {
	if reflect.ValueOf(from).Pointer() == reflect.ValueOf(to).Pointer() {
		return list // they are one object
	}
	for name, before := range from {
		after, is := to[name]
		list = differ(list, at, name, before, after, true, is)
	}
	for name, after := range to {
		if before, was := from[name]; !was {
			list = differ(list, at, name, before, after, false, true)
		}
	}
	return list
}

// differ adds the differences of a member, which was and is there or not.
func differ(
	list []Difference, at, name string, before, after any, was, is bool,
) []Difference {
	below, _ := before.(map[string]any)
	above, _ := after.(map[string]any)
	switch {
	case (below != nil || !was) && (above != nil || !is) && (below != nil || above != nil):
		return differences(list, member(at, name), below, above)
	case was != is || !reflect.DeepEqual(before, after):
		return append(list,
			Difference{member(at, name), shownValue(before, was), shownValue(after, is)})
	}
	return list
}

// shownValue returns a string unchanged and anything else as JSON; nil if it is not there.
func shownValue(value any, there bool) *string {
	if !there {
		return nil
	}
	text, ok := value.(string)
	if !ok {
		encoded, _ := json.Marshal(value) // decoded values can be encoded
		text = string(encoded)
	}
	return &text
}

// moving settings restart kubelet but do not disturb: without them a node loses the API server.
var moving = []string{"node.kubelet.serverURL", "node.kubelet.caCertData"}

// undisturbing are the settings, with all below them, that an agent applies without a restart or
// drain, except for restarting. Others disturb pods; flexnode.TestUndisturbing compares this with
// the agent's plan.
var undisturbing, restarting = []string{
	"agent", "azure", "continuousMonitoring", "network", "node.labels", "node.taints",
}, []string{
	"azure.kubeletCredential", "azure.registries", "azure.servicePrincipal.clientSecretFile",
}

// branches lists the settings whose changes drain the node by default. Of a version, it has the
// number of components that identify a branch: Kubernetes's minor version, containerd's major one.
var branches = map[string]int{"kubernetes.version": 2, "containerd.version": 1, "cni.podCIDR": 0}

// The effects of a changed setting on the pods of a node.
const (
	DisruptsNothing = "none"
	Restart         = "restart" // kubelet or containerd restarts; pods that still fit keep running
	Drain           = "drain"   // the pods move to other nodes first
)

// Disturbing returns the differences that an agent must ask for before it restarts or drains.
func Disturbing(from, to map[string]any) []Difference {
	return slices.DeleteFunc(Differences(from, to), func(d Difference) bool {
		return d.below(moving) || DisruptionOf(d, to) == DisruptsNothing
	})
}

// DisruptionOf returns the effect of a difference on the way to the configuration to.
func DisruptionOf(d Difference, to map[string]any) string {
	drain, _ := objectAt(to, "agent.upgradePolicy", false)["drain"].(string)
	switch {
	case !d.below(moving) && UpgradePolicy{Drain: drain}.Drains(d.otherBranch()):
		return Drain
	case d.below(undisturbing) && !d.below(restarting):
		return DisruptsNothing
	}
	return Restart
}

func (d Difference) otherBranch() bool {
	numbers, listed := branches[d.Path]
	if numbers == 0 || d.From == nil || d.To == nil {
		return listed && numbers == 0
	}
	from, to := strings.Split(*d.From, "."), strings.Split(*d.To, ".")
	return !slices.Equal(from[:min(numbers, len(from))], to[:min(numbers, len(to))])
}

func (d Difference) below(settings []string) bool {
	return slices.ContainsFunc(settings, func(at string) bool { return Below(d.Path, at) })
}

// Drains reports whether the node is drained before the configuration to replaces this one.
func (c Config) Drains(to Config) bool {
	next := to.Redacted()
	return slices.ContainsFunc(c.Differences(to), func(d Difference) bool {
		return DisruptionOf(d, next) == Drain
	})
}

// Below reports whether a path is a setting or below it.
func Below(path, setting string) bool {
	rest, ok := strings.CutPrefix(path, setting)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Disturbs reports whether an agent restarts or drains to change to another configuration.
func (c Config) Disturbs(to Config) bool { return len(Disturbing(c.Redacted(), to.Redacted())) > 0 }

// Disruption returns the max time for which a change drains and proves a node.
func (a Agent) Disruption() time.Duration {
	return a.UpgradePolicy.DrainDeadline() + duration(cmp.Or(a.ReadyTimeout, defaultReadyTimeout))
}
