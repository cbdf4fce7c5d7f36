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
	// Taken are ports of kubelet that somebody listens on while kubelet does not run.
	Taken []int
	// Routed tells whether there is a default route, Resolvers the name servers of the node; nil
	// when that is not known.
	Routed    *bool
	Resolvers []string
	// Endpoints are the servers that the configuration needs, and how they were reached.
	Endpoints Answer[[]Endpoint]
	// Sync is how long a small file takes to be on the disk, 0 when that is not known.
	Sync time.Duration
	// Unfinished are packages that dpkg has not finished with; Held ours on which there is a hold;
	// Upgradable those of container runtimes and kubelet on which there is none.
	Unfinished, Held, Upgradable []string
}

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
