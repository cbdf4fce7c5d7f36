package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/release"
)

// StateDir holds the state of the agent that survives a reboot, RunDir the rest. DefaultLogDir
// holds the log unless a configuration sets another directory.
const (
	StateDir      = "/var/lib/aks-flex-node"
	RunDir        = "/run/aks-flex-node"
	DefaultLogDir = "/var/log/aks-flex-node"
)

// defaults returns a Config with every default that depends on nothing else, without versions
// (fillVersions). The pause image is from the registry that an AKS node must reach anyway.
func defaults() Config {
	return Config{
		Azure: Azure{Cloud: PublicCloud},
		Containerd: Containerd{
			PauseImage: "mcr.microsoft.com/oss/kubernetes/pause:3.10", MetricsAddress: "127.0.0.1:10257",
		},
		Node: Node{MaxPods: 110, Kubelet: Kubelet{
			Verbosity: 2, ImageGCHighThreshold: 85, ImageGCLowThreshold: 80,
			SeccompDefault: new(true), PodPidsLimit: new(4096), ShutdownGracePeriod: "30s",
		}},
		Paths: Paths{
			Kubernetes: KubernetesPaths{
				ConfigDir: "/etc/kubernetes", CertsDir: "/etc/kubernetes/certs",
				ManifestsDir:    "/etc/kubernetes/manifests",
				VolumePluginDir: "/etc/kubernetes/volumeplugins", KubeletDir: "/var/lib/kubelet",
			},
			CNI: CNIPaths{BinDir: "/opt/cni/bin", ConfDir: "/etc/cni/net.d"},
		},
		Agent: Agent{
			LogLevel: "info", LogFormat: "text", LogDir: DefaultLogDir, DriftPolicy: DriftReport,
			ReadyTimeout: defaultReadyTimeout,
		},
	}
}

func (c *Config) versions() []*string {
	return []*string{
		&c.Kubernetes.Version, &c.Containerd.Version, &c.Runc.Version, &c.CNI.Version, &c.NPD.Version,
	}
}

// fillVersions fills in unset versions, as far as the versions that they depend on are known: the
// cluster determines that of Kubernetes, and until then containerd's and runc's stay unset.
func (c *Config) fillVersions() {
	set := release.Set{
		Kubernetes: c.Kubernetes.Version, Containerd: c.Containerd.Version, Runc: c.Runc.Version,
		CNI: c.CNI.Version, NPD: c.NPD.Version,
	}.Filled()
	c.Containerd.Version, c.Runc.Version = set.Containerd, set.Runc
	c.CNI.Version, c.NPD.Version = set.CNI, set.NPD
}

// complete normalizes settings, and fills in defaults that depend on others or on the host.
func (c *Config) complete(host Host) {
	before := cmp.Or(host.Before, &Config{})
	c.normalize()
	c.fillVersions()
	or(&c.Agent.NodeName, before.Agent.NodeName)
	or(&c.Agent.NodeName, strings.ToLower(host.HostName))
	subscription, _, _ := c.Azure.TargetCluster.ID()
	or(&c.Azure.SubscriptionID, subscription)
	manager, authority := endpoints(c.Azure.Cloud)
	or(&c.Azure.ResourceManagerEndpoint, manager)
	or(&c.Azure.AuthorityHost, authority)
	if sp := c.Azure.ServicePrincipal; sp != nil {
		or(&sp.TenantID, c.Azure.TenantID)
	}
	// The last third of the shutdown period, at most 15s, is for critical pods.
	if total, err := time.ParseDuration(c.Node.Kubelet.ShutdownGracePeriod); err == nil {
		critical := min(total/3, 15*time.Second).Truncate(time.Second)
		or(&c.Node.Kubelet.CriticalGracePeriod, critical.String())
	}
	or(&c.Node.Kubelet.DNSServiceIP, before.Node.Kubelet.DNSServiceIP)
	if c.CNI.NonMasqueradeCIDRs == nil {
		c.CNI.NonMasqueradeCIDRs = slices.Clone(before.CNI.NonMasqueradeCIDRs)
	}
	c.Azure.completeCredential(before.Azure)
	if c.Azure.ArcEnabled() {
		c.Azure.completeArc(before.Azure, host.HostName)
	}
	labels := map[string]string{managedLabel: managedValue}
	maps.Copy(labels, c.Node.Labels)
	c.Node.Labels = labels
}

// completeCredential chooses kubelet's credential: the applied one for the same method, else the
// default.
func (a *Azure) completeCredential(before Azure) {
	if a.BootstrapToken != nil {
		return
	}
	if a.AuthMode() == before.AuthMode() {
		or(&a.KubeletCredential, before.KubeletCredential)
	}
	auto := cmp.Or(a.Arc, &Arc{}).AutoRoleAssignment
	or(&a.KubeletCredential, DefaultCredential(*cmp.Or(auto, new(false))))
}

// DefaultCredential returns the default of kubelet's credential for an identity in Azure: a
// certificate, since a token needs roles that make the machine an administrator of the cluster.
// With automatic role assignment it is a token.
func DefaultCredential(autoRoleAssignment bool) string {
	if autoRoleAssignment {
		return CredentialToken
	}
	return CredentialCertificate
}

func (a *Azure) completeArc(before Azure, hostName string) {
	arc := a.Arc
	if before.ArcEnabled() {
		or(&arc.MachineName, before.Arc.MachineName)
		if arc.Roles == nil && a.KubeletCredential == before.KubeletCredential {
			arc.Roles = slices.Clone(before.Arc.Roles)
		}
	}
	or(&arc.MachineName, hostName)
	_, group, _ := a.TargetCluster.ID()
	or(&arc.ResourceGroup, group)
	or(&arc.Location, a.TargetCluster.Location)
	or(&arc.Enabled, new(true))
	or(&arc.AutoRoleAssignment, new(false))
	if arc.Roles == nil && a.KubeletCredential == CredentialToken {
		arc.Roles = []string{RoleReader, RoleRBACClusterAdmin, RoleClusterAdmin}
	}
}

func endpoints(cloud string) (manager, authority string) {
	switch cloud {
	case USGovernmentCloud:
		return "https://management.usgovcloudapi.net", "https://login.microsoftonline.us"
	case ChinaCloud:
		return "https://management.chinacloudapi.cn", "https://login.chinacloudapi.cn"
	}
	return "https://management.azure.com", "https://login.microsoftonline.com"
}

// normalize rewrites forms such as "v1.2.3", "https://host/" and "warn", and digests in capitals.
func (c *Config) normalize() {
	for _, v := range c.versions() {
		*v = release.Bare(*v)
	}
	for _, u := range []*string{
		&c.Azure.ResourceManagerEndpoint, &c.Azure.AuthorityHost, &c.Node.Kubelet.ServerURL,
		&c.Artifacts.Mirror, &c.Agent.Monitoring.Endpoint,
	} {
		*u = strings.TrimRight(*u, "/")
	}
	for i := range c.Artifacts.Mirrors {
		c.Artifacts.Mirrors[i] = strings.TrimRight(c.Artifacts.Mirrors[i], "/")
	}
	for name, o := range c.Artifacts.Overrides {
		o.SHA256, o.TarSHA256 = strings.ToLower(o.SHA256), strings.ToLower(o.TarSHA256)
		c.Artifacts.Overrides[name] = o
	}
	if c.Agent.LogLevel == "warn" {
		c.Agent.LogLevel = "warning"
	}
}

func or[T comparable](setting *T, value T) { *setting = cmp.Or(*setting, value) }
