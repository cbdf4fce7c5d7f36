package health

import "strings"

// notVulnerable: no release is known to let a container break out.
func notVulnerable(e Evidence) Condition {
	var flaws []string
	for _, v := range [][2]string{
		{"kubelet", e.Wanted.Kubernetes.Version}, {"containerd", e.Wanted.Containerd.Version},
		{"runc", e.Wanted.Runc.Version},
	} {
		if flaw := e.Wanted.Flaw(v[0], v[1]); flaw != "" {
			flaws = append(flaws, flaw)
		}
	}
	if len(flaws) > 0 {
		return fails(OwnerConfiguration, "Vulnerable", strings.Join(flaws, "; "))
	}
	return holds()
}
