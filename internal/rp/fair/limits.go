package fair

import (
	"fmt"
	"runtime"
	"strings"
)

// Limits are what an operator of the provider may set. They hold for each replica.
type Limits struct {
	Requests Requests `json:"requests"`
	AtOnce   AtOnce   `json:"atOnce"`
	Quotas   Quotas   `json:"quotas"`
	// Connections are of each listener.
	Connections Network `json:"connections"`
}

// Network bounds what clients may do before anybody knows who they are.
type Network struct {
	// Max is how many connections there are, PerAddress how many of one address.
	Max        int `json:"max"`
	PerAddress int `json:"perAddress"`
	// HeaderSeconds is how long a client may take for the first message of a handshake, and for a
	// header, and HeaderBytes how large that may be; RequestSeconds for the rest of a handshake
	// (Handshakes) and for all of a request, AnswerSeconds for taking the answer, IdleSeconds until
	// the next request.
	HeaderSeconds  int `json:"headerSeconds"`
	HeaderBytes    int `json:"headerBytes"`
	RequestSeconds int `json:"requestSeconds"`
	AnswerSeconds  int `json:"answerSeconds"`
	IdleSeconds    int `json:"idleSeconds"`
	// Streams is how many requests of HTTP/2 there may be at once on a connection.
	Streams int `json:"streams"`
}

// DefaultLimits are the rates that Resource Manager has for a principal and a subscription, and
// places for a machine like this one: polls have room to spare, and lists, which keep a processor
// busy for long, get half of the processors.
func DefaultLimits() Limits {
	return Limits{
		Requests: Requests{
			Principal: Rates{
				Reads: Rate{250, 25}, Lists: Rate{100, 5}, Writes: Rate{200, 10},
				Deletes: Rate{200, 10},
			},
			Subscription: Rates{
				Reads: Rate{3750, 375}, Lists: Rate{500, 25}, Writes: Rate{3000, 150},
				Deletes: Rate{3000, 150},
			},
			Node: Rate{200, 50}, Refreshes: Rate{6, .1}, Reports: Rate{20, 1},
		},
		AtOnce: AtOnce{
			Nodes: Places{256, 20_000, 10}, NodeStore: Places{64, 4096, 10},
			Reads:  Places{64, 256, 5},
			Lists:  Places{max(1, runtime.GOMAXPROCS(0)/2), 64, 5},
			Writes: Places{128, 256, 5},
		},
		Quotas: Quotas{Default: Quota{
			Nodes: 20_000, Clusters: 100, Tokens: 5_000, Bytes: 64 << 20,
		}},
		Connections: Network{
			Max: 16_384, PerAddress: 12_288, HeaderSeconds: 10, HeaderBytes: 32 << 10,
			RequestSeconds: 30, AnswerSeconds: 60, IdleSeconds: 120, Streams: 32,
		},
	}
}

// Check tells every problem, with its path below the limits.
func (l Limits) Check() []string {
	var problems []string
	need := func(ok bool, path, what string) {
		if !ok {
			problems = append(problems, path+": "+what)
		}
	}
	bucket := func(r Rate, path string) {
		need(r.Burst >= 1 && r.PerSecond > 0, path, "needs burst, at least 1, and perSecond, above 0")
	}
	rates := func(r Rates, path string, partly bool) {
		for _, k := range kinds {
			if one := r.of(k); !partly || one != (Rate{}) {
				bucket(one, path+"."+strings.ToLower(string(k)))
			}
		}
	}
	rates(l.Requests.Principal, "requests.principal", false)
	rates(l.Requests.Subscription, "requests.subscription", false)
	bucket(l.Requests.Node, "requests.node")
	bucket(l.Requests.Refreshes, "requests.refreshes")
	bucket(l.Requests.Reports, "requests.reports")
	for id, r := range l.Requests.Exceptions {
		rates(r, fmt.Sprintf("requests.exceptions[%s]", id), true)
	}
	for i, p := range l.AtOnce.all() {
		need(p.InFlight >= 1 && p.Queue >= 0 && p.Seconds >= 1, "atOnce."+Class(i).String(),
			"needs inFlight and seconds, at least 1, and queue, at least 0")
	}
	q := l.Quotas.Default
	need(q.Nodes >= 1 && q.Clusters >= 1 && q.Tokens >= 1 && q.Bytes >= 1, "quotas.default",
		"needs nodes, clusters, tokens and bytes, at least 1")
	for id, q := range l.Quotas.Subscriptions {
		need(q.Nodes >= 0 && q.Clusters >= 0 && q.Tokens >= 0 && q.Bytes >= 0,
			fmt.Sprintf("quotas.subscriptions[%s]", id), "must not be negative")
	}
	n := l.Connections
	for _, one := range []int{n.Max, n.PerAddress, n.HeaderSeconds, n.HeaderBytes, n.RequestSeconds,
		n.AnswerSeconds, n.IdleSeconds, n.Streams} {
		need(one >= 1, "connections", "all of it must be at least 1")
	}
	return problems
}
