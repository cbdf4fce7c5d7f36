package health

import (
	"time"

	"github.com/Azure/AKSFlexNode/internal/kube"
)

// Examined is evidence that costs too much, or changes too much, to be gathered each minute:
// somebody who asks what is wrong waits for it.
type Examined struct {
	// Configuration is whether the machine's configuration can be used; State whether what the
	// agent has recorded can be read.
	Configuration, State Answer[struct{}]
	// Unprivileged tells that somebody other than root asks, who cannot see what is the node's own.
	Unprivileged bool
	// MissingModules, MissingControllers and MissingCPU are what the kernel and the processor lack.
	MissingModules, MissingControllers, MissingCPU []string
	CgroupVersion                                  int
	// CgroupV1Allowed tells that the owner has had kubelet accept version 1.
	CgroupV1Allowed bool
	// InodesUsed is in percent, by directory.
	InodesUsed map[string]int
	ReadOnly   []string
	// Taken are ports of kubelet that somebody listens on while kubelet does not run.
	Taken []int
	// Swaps are the swap areas in use on a machine that is a node.
	Swaps          []string
	RebootRequired bool
	// Routed tells whether there is a default route, Resolvers the name servers of the node; nil
	// when that is not known.
	Routed    *bool
	Resolvers []string
	// Endpoints are the servers that the configuration needs, and how they were reached.
	Endpoints Answer[[]Endpoint]
	// CA holds the cluster's certificates in PEM, "" when they are not known.
	CA string
	// Client is kubelet's client certificate, asked for on a node that shows one.
	Client Answer[Validity]
}

// Validity is from when to when a certificate is valid.
type Validity struct{ From, To time.Time }

// Endpoint is a server that the configuration needs.
type Endpoint struct {
	// URL has scheme, host and port alone.
	URL string
	// Purpose is why it is needed. Needed tells that this machine needs it now; another one only for
	// a change to come.
	Purpose string
	Needed  bool
	// Cluster tells that it is the API server, which has a condition of its own.
	Cluster bool
	kube.Reached
	// Err is why it cannot be reached, a *kube.Fault.
	Err  error
	Took time.Duration
}
