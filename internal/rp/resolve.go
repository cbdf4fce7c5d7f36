package rp

import (
	"fmt"
	"strconv"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// skew is how many minor versions kubelet may be older than its API server (Kubernetes version skew policy).
const skew = 3

// components are the versions that go with each other and with every Kubernetes version that the agent knows. The lab's end-to-end tests
// run them with Kubernetes 1.34 and 1.35.
func components() api.Versions {
	return api.Versions{Containerd: "2.2.1", Runc: "1.3.4", CNI: "1.9.1", NPD: "1.34.0"}
}

// resolveVersions fills in the versions that the caller leaves open. The kubelet is never newer than the API server.
func resolveVersions(want api.Versions, server string) (api.Versions, []problem) {
	or := func(value, otherwise string) string {
		if value != "" {
			return strings.TrimPrefix(value, "v")
		}
		return otherwise
	}
	table := components()
	got := api.Versions{
		Kubernetes: or(want.Kubernetes, server), Containerd: or(want.Containerd, table.Containerd), Runc: or(want.Runc, table.Runc),
		CNI: or(want.CNI, table.CNI), NPD: or(want.NPD, table.NPD),
	}
	const target = "properties.versions.kubernetes"
	k, err := parseVersion(got.Kubernetes)
	if err != nil {
		return got, []problem{{target, fmt.Sprintf("The Kubernetes version '%s' is not a version x.y.z.", got.Kubernetes)}}
	}
	s, err := parseVersion(server)
	switch {
	case err != nil: // the cluster has not been reached yet
		return got, nil
	case k[0] != s[0] || k[1] > s[1] || k[1] == s[1] && k[2] > s[2]:
		return got, []problem{{target, fmt.Sprintf("The Kubernetes version '%s' is newer than the cluster's API server, which is %s; upgrade the cluster first.", got.Kubernetes, server)}}
	case s[1]-k[1] > skew:
		return got, []problem{{target, fmt.Sprintf("The Kubernetes version '%s' is more than %d minor versions older than the cluster's API server, which is %s.", got.Kubernetes, skew, server)}}
	}
	return got, nil
}

// parseVersion takes x.y.z apart; what follows the patch number is ignored.
func parseVersion(s string) ([3]int, error) {
	var v [3]int
	parts := strings.SplitN(strings.TrimPrefix(s, "v"), ".", 3)
	if len(parts) != 3 {
		return v, fmt.Errorf("cannot parse the version %q", s)
	}
	parts[2], _, _ = strings.Cut(parts[2], "-")
	parts[2], _, _ = strings.Cut(parts[2], "+")
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 {
			return v, fmt.Errorf("cannot parse the version %q", s)
		}
		v[i] = n
	}
	return v, nil
}
