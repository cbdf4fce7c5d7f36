package fair

import (
	"fmt"
	"runtime"
)

// Limits are what an operator of the provider may set. They hold for each replica.
type Limits struct {
	Requests Requests `json:"requests"`
	AtOnce   AtOnce   `json:"atOnce"`
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
			Node: Rate{200, 50},
		},
		AtOnce: AtOnce{
			Nodes:  Places{256, 20_000, 10},
			Reads:  Places{64, 256, 5},
			Lists:  Places{max(1, runtime.GOMAXPROCS(0)/2), 64, 5},
			Writes: Places{128, 256, 5},
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
				bucket(one, path+"."+map[Kind]string{Reads: "reads", Lists: "lists",
					Writes: "writes", Deletes: "deletes"}[k])
			}
		}
	}
	rates(l.Requests.Principal, "requests.principal", false)
	rates(l.Requests.Subscription, "requests.subscription", false)
	bucket(l.Requests.Node, "requests.node")
	for id, r := range l.Requests.Exceptions {
		rates(r, fmt.Sprintf("requests.exceptions[%s]", id), true)
	}
	for i, p := range []Places{l.AtOnce.Nodes, l.AtOnce.Reads, l.AtOnce.Lists, l.AtOnce.Writes} {
		need(p.InFlight >= 1 && p.Queue >= 0 && p.Seconds >= 1, "atOnce."+Class(i).String(),
			"needs inFlight and seconds, at least 1, and queue, at least 0")
	}
	return problems
}
