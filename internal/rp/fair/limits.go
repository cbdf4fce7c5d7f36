package fair

import "fmt"

// Limits holds the limits that an operator of the provider may set, for each replica.
type Limits struct {
	// Exceptions holds the factors by which principals and subscriptions with an id may send more
	// requests than others, such as an automation that rolls out thousands of nodes, and their nodes.
	Exceptions map[string]float64 `json:"exceptions,omitempty"`
	Quotas     Quotas             `json:"quotas"`
	// Connections limits those of each listener.
	Connections Network `json:"connections"`
}

// Network limits the connections of a listener: Max all of them, which take memory and descriptors,
// PerAddress those of one address, which may be a load balancer's.
type Network struct {
	Max        int `json:"max"`
	PerAddress int `json:"perAddress"`
}

// DefaultLimits returns the limits for a machine of two cores.
func DefaultLimits() Limits {
	return Limits{
		Quotas: Quotas{Default: Quota{
			Nodes: 20_000, Clusters: 100, Tokens: 5_000, Bytes: 64 << 20,
		}},
		Connections: Network{Max: 16_384, PerAddress: 12_288},
	}
}

// Check returns all problems, each with its path below the limits.
func (l Limits) Check() []string {
	var problems []string
	need := func(ok bool, path, what string) {
		if !ok {
			problems = append(problems, path+": "+what)
		}
	}
	for id, times := range l.Exceptions {
		need(times > 0 && times <= maxTimes, fmt.Sprintf("exceptions[%s]", id),
			"is how many times as much may be asked, above 0")
	}
	q := l.Quotas.Default
	need(q.Nodes >= 1 && q.Clusters >= 1 && q.Tokens >= 1 && q.Bytes >= 1, "quotas.default",
		"needs nodes, clusters, tokens and bytes, at least 1")
	for id, q := range l.Quotas.Subscriptions {
		need(q.Nodes >= 0 && q.Clusters >= 0 && q.Tokens >= 0 && q.Bytes >= 0,
			fmt.Sprintf("quotas.subscriptions[%s]", id), "must not be negative")
	}
	n := l.Connections
	need(n.Max >= 1 && n.PerAddress >= 1, "connections", "needs max and perAddress, at least 1")
	return problems
}

// maxTimes is a factor that amounts to no limit.
const maxTimes = 1_000_000
