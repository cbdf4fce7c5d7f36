package health

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/kube"
)

// endpoints are the servers that are needed now, as far as they were tried.
func (e Evidence) endpoints() ([]Endpoint, Condition) {
	if e.Examined == nil {
		return nil, notAsked()
	}
	if !e.Examined.Endpoints.OK() {
		return nil, e.Examined.Endpoints.missing()
	}
	var needed []Endpoint
	for _, p := range e.Examined.Endpoints.Value {
		if p.Needed {
			needed = append(needed, p)
		}
	}
	return needed, holds()
}

// broken are the servers that are needed now and whose way is broken in one of these layers.
func (e Evidence) broken(in func(Endpoint, kube.Layer) bool, owner, reason, cure string) Condition {
	needed, c := e.endpoints()
	if c.Status != True {
		return c
	}
	var found, remedies []string
	for _, p := range needed {
		fault, ok := errors.AsType[*kube.Fault](p.Err)
		if !ok || !in(p, fault.Layer) {
			continue
		}
		bare := *fault
		bare.Remedy = ""
		found = append(found, fmt.Sprintf("%s (%s): %s", p.URL, p.Purpose, oneLine(&bare)))
		if fault.Remedy != "" && !slices.Contains(remedies, fault.Remedy) {
			remedies = append(remedies, fault.Remedy)
		}
	}
	if len(found) == 0 {
		return c
	}
	return fails(owner, reason, strings.Join(append(found, remedies...), "; ")+cure)
}

func namesResolved(e Evidence) Condition {
	return e.broken(func(_ Endpoint, l kube.Layer) bool { return l == kube.LayerDNS }, OwnerNetwork,
		"NotResolved", "; ask the machine's resolver itself with `resolvectl query NAME`; a private "+
			"cluster's name resolves only with its own DNS zone")
}

func endpointsReachable(e Evidence) Condition {
	return e.broken(func(p Endpoint, l kube.Layer) bool {
		return !p.Cluster && (l == kube.LayerTCP || l == kube.LayerProxy)
	}, OwnerNetwork, "NotConnected", "; `aks-flex-node endpoints` lists all that this machine needs")
}

func endpointsTrusted(e Evidence) Condition {
	return e.broken(func(p Endpoint, l kube.Layer) bool { return !p.Cluster && l == kube.LayerTLS },
		OwnerNetwork, "NotTrusted", "; a proxy that inspects TLS shows a certificate of its own: exempt "+
			"these hosts, or add its CA to the system's (`update-ca-certificates`)")
}

// pathMTU: where larger packets are dropped on the way, connections are made and then hang.
func pathMTU(e Evidence) Condition {
	needed, c := e.endpoints()
	if c.Status != True {
		return c
	}
	for _, p := range needed {
		if p.SmallOnly {
			return fails(OwnerNetwork, "LargePacketsLost", p.URL+" ("+p.Purpose+") answers small packets "+
				"only: larger ones are dropped on the way, as by a VPN whose MTU is not told; lower the "+
				"MTU of the network interface (`ip link set dev NAME mtu 1400`), or have the network "+
				"let ICMP \"fragmentation needed\" through")
		}
	}
	return c
}

// mostAhead is how far two clocks may differ. Entra ID and certificates forgive five minutes.
const mostAhead = time.Minute

// clockAccurate compares the clocks of the servers. Where they differ from each other, it is not
// this machine's that is wrong.
func clockAccurate(e Evidence) Condition {
	needed, c := e.endpoints()
	if c.Status != True {
		return c
	}
	var differ []string
	dated := 0
	for _, p := range needed {
		if p.Ahead == nil {
			continue
		}
		dated++
		if d := p.Ahead.Abs(); d > mostAhead {
			which := "behind"
			if *p.Ahead < 0 {
				which = "ahead of"
			}
			differ = append(differ, fmt.Sprintf("%s %s that of %s", d, which, p.URL))
		}
	}
	switch {
	case dated == 0:
		return unknown("NoServerTime", "no server has sent its time")
	case len(differ) == 0:
		return c
	case len(differ) < dated:
		return fails(OwnerCluster, "ServersDiffer", "the clocks of servers differ: this machine's is "+
			strings.Join(differ, ", and ")+", and right by the others; ask who runs that server")
	}
	return fails(OwnerMachine, "ClockWrong", "the clock of this machine is "+
		strings.Join(differ, ", and ")+"; certificates and tokens depend on it: set it, and keep it "+
		"with NTP (`timedatectl set-ntp true`, `timedatectl timesync-status`)")
}
