package config

import (
	"fmt"
	"slices"
	"strings"
)

// maxSkew is how many minor versions kubelet may be older than the API server
// (https://kubernetes.io/releases/version-skew-policy/).
const maxSkew = 3

// Skew returns an error when a kubelet does not work with an API server: when its minor version is
// newer, or more than three older. The API server's version may be written as it says it itself.
func Skew(kubelet, server string) error {
	k, known := parseVersion(kubelet)
	s, ok := serverVersion(server)
	const cannot = "cannot use kubelet %s with an API server of version %s: kubelet must not be "
	switch {
	case !known || !ok:
		return fmt.Errorf("cannot compare kubelet %s with the API server's version %s: "+
			"one of them is not a version x.y.z", show(kubelet), show(server))
	case k.major > s.major || k.major == s.major && k.minor > s.minor:
		return fmt.Errorf(cannot+"newer; set kubernetes.version to %d.%d.z or older, or upgrade "+
			"the cluster first",
			bare(kubelet), bare(server), s.major, s.minor)
	case k.major < s.major || k.minor+maxSkew < s.minor:
		return fmt.Errorf(cannot+"more than %d minor versions older; set kubernetes.version to "+
			"%d.%d.z or newer",
			bare(kubelet), bare(server), maxSkew, s.major, max(0, s.minor-maxSkew))
	}
	return nil
}

// KubernetesFor chooses the version of Kubernetes for a configuration that leaves it open: that of
// the API server if its digests are known, else the newest known version that is not newer than the
// API server.
func KubernetesFor(server string, known []string) (string, error) {
	s, ok := serverVersion(server)
	if !ok {
		return "", fmt.Errorf("cannot choose a version of Kubernetes: the API server's version %s "+
			"is not a version x.y.z; set kubernetes.version", show(server))
	}
	best, found := "", version{}
	for _, candidate := range known {
		v, ok := parseVersion(candidate)
		if ok && v.compare(s) <= 0 && (best == "" || v.compare(found) > 0) {
			best, found = bare(candidate), v
		}
	}
	if best == "" || Skew(best, server) != nil {
		sorted := slices.Sorted(slices.Values(known))
		return "", fmt.Errorf("cannot choose a version of Kubernetes for an API server of version "+
			"%s: known are %s; set kubernetes.version", bare(server), strings.Join(sorted, ", "))
	}
	return best, nil
}

// WithKubernetes is the configuration with the version of Kubernetes that was chosen for it. The
// error is of type Problems: the version, or what does not go together with it.
func (c Config) WithKubernetes(version string) (Config, error) {
	c.Kubernetes.Version = bare(version)
	r := &report{}
	if !isKubernetesVersion(version) {
		r.add("kubernetes.version", show(version), "must be "+aKubernetesVersion())
	}
	checkKubernetes(c, r)
	if problems := r.sorted(c); len(problems) > 0 {
		return Config{}, problems
	}
	return c, nil
}
