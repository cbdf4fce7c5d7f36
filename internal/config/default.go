package config

import (
	"maps"
	"strings"
)

// defaults is a Config with every default that depends on nothing else. The versions are ones whose digests are pinned in the
// binary. The pause image comes from the registry that a node of AKS must reach anyway, for the cluster's own pods.
func defaults() Config {
	return Config{
		Azure:      Azure{Cloud: PublicCloud},
		Kubernetes: Kubernetes{Version: "1.34.4"},
		Containerd: Containerd{Version: "2.2.1", PauseImage: "mcr.microsoft.com/oss/kubernetes/pause:3.10", MetricsAddress: "127.0.0.1:10257"},
		Runc:       Runc{Version: "1.3.4"},
		CNI:        CNI{Version: "1.9.1"},
		NPD:        NPD{Version: "1.34.0"},
		Node: Node{
			MaxPods: 110,
			Kubelet: Kubelet{Verbosity: 2, ImageGCHighThreshold: 85, ImageGCLowThreshold: 80, DNSServiceIP: "10.0.0.10"},
		},
		Paths: Paths{
			Kubernetes: KubernetesPaths{
				ConfigDir:       "/etc/kubernetes",
				CertsDir:        "/etc/kubernetes/certs",
				ManifestsDir:    "/etc/kubernetes/manifests",
				VolumePluginDir: "/etc/kubernetes/volumeplugins",
				KubeletDir:      "/var/lib/kubelet",
			},
			CNI: CNIPaths{BinDir: "/opt/cni/bin", ConfDir: "/etc/cni/net.d"},
		},
		Agent: Agent{LogLevel: "info", LogDir: "/var/log/aks-flex-node", DriftPolicy: DriftReport, ReadyTimeout: "5m"},
	}
}

// complete fills in the defaults that depend on other settings or on the host, and brings what can be written in several ways
// into one form.
func (c *Config) complete(host Host) {
	c.canonical()
	or(&c.Agent.NodeName, strings.ToLower(host.HostName))
	subscription, group, _ := c.Azure.TargetCluster.ID()
	or(&c.Azure.SubscriptionID, subscription)
	manager, authority := endpoints(c.Azure.Cloud)
	or(&c.Azure.ResourceManagerEndpoint, manager)
	or(&c.Azure.AuthorityHost, authority)
	if c.Azure.BootstrapToken == nil {
		or(&c.Azure.KubeletCredential, CredentialToken)
	}
	if sp := c.Azure.ServicePrincipal; sp != nil {
		or(&sp.TenantID, c.Azure.TenantID)
	}
	if arc := c.Azure.Arc; c.Azure.ArcEnabled() {
		or(&arc.MachineName, host.HostName)
		or(&arc.ResourceGroup, group)
		or(&arc.Location, c.Azure.TargetCluster.Location)
		arc.Enabled = yes(arc.Enabled)
		arc.AutoRoleAssignment = yes(arc.AutoRoleAssignment)
		if arc.Roles == nil && c.Azure.KubeletCredential == CredentialToken {
			arc.Roles = []string{RoleReader, RoleRBACClusterAdmin, RoleClusterAdmin}
		}
	}
	if _, ok := c.Node.Labels[managedLabel]; !ok {
		labels := map[string]string{managedLabel: managedValue}
		maps.Copy(labels, c.Node.Labels)
		c.Node.Labels = labels
	}
}

// endpoints are the base URLs of Azure Resource Manager and Entra ID in a cloud.
func endpoints(cloud string) (manager, authority string) {
	switch cloud {
	case USGovernmentCloud:
		return "https://management.usgovcloudapi.net", "https://login.microsoftonline.us"
	case ChinaCloud:
		return "https://management.chinacloudapi.cn", "https://login.chinacloudapi.cn"
	}
	return "https://management.azure.com", "https://login.microsoftonline.com"
}

// canonical rewrites "v1.2.3", "https://host/", "warn" and digests in capitals.
func (c *Config) canonical() {
	for _, v := range []*string{&c.Kubernetes.Version, &c.Containerd.Version, &c.Runc.Version, &c.CNI.Version, &c.NPD.Version} {
		*v = bare(*v)
	}
	for _, u := range []*string{&c.Azure.ResourceManagerEndpoint, &c.Azure.AuthorityHost, &c.Node.Kubelet.ServerURL, &c.Artifacts.Mirror} {
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

// or sets what is not set.
func or(s *string, value string) {
	if *s == "" {
		*s = value
	}
}

// yes is b, or true where nothing is set.
func yes(b *bool) *bool {
	if b == nil {
		b = new(bool)
		*b = true
	}
	return b
}
