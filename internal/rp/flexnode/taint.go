package flexnode

import (
	"slices"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// Taint keeps pods off a Node.
type Taint struct{ Key, Value, Effect string }

// ReadTaint reads a taint as an owner writes it: key=value:Effect or key:Effect.
func ReadTaint(s string) Taint {
	pair, effect, _ := strings.Cut(s, ":")
	key, value, _ := strings.Cut(pair, "=")
	return Taint{key, value, effect}
}

// String is the one way in which a taint is written here.
func (t Taint) String() string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
}

// Taints are those that the provider keeps on a node's Node: what its owner wants, in order,
// without the ones of Kubernetes itself, which its controllers set and take away.
func Taints(d api.Desired) []string {
	var list []string
	for _, text := range d.NodeConfig.Taints {
		t := ReadTaint(text)
		prefix, _, _ := strings.Cut(t.Key, "/")
		if !isKubernetes(prefix) {
			list = append(list, t.String())
		}
	}
	slices.Sort(list)
	return list
}

// isKubernetes reports whether the prefix of a key is Kubernetes' own.
func isKubernetes(prefix string) bool {
	return slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(domain string) bool {
		return prefix == domain || strings.HasSuffix(prefix, "."+domain)
	})
}
