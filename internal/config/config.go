// Package config is the agent's configuration: the JSON document that a user writes, its defaults,
// its validation and its redaction. It reads bytes and returns values; it uses no network and
// changes nothing. The agent's commands call Load; everything after them sees only a valid Config.
package config

import (
	"time"

	"github.com/Azure/AKSFlexNode/internal/regular"
)

// Config is the whole configuration of one node. Load returns it complete: every default is filled
// in and every value is valid, so readers need no fallbacks of their own; only kubernetes.version
// may be open (see Parse). Field documentation is the source of docs/reference/configuration.md.
type Config struct {
	Azure      Azure      `json:"azure"`
	Kubernetes Kubernetes `json:"kubernetes"`
	Containerd Containerd `json:"containerd"`
	Runc       Runc       `json:"runc"`
	CNI        CNI        `json:"cni"`
	Network    Network    `json:"network,omitzero"`
	NPD        NPD        `json:"npd"`
	Node       Node       `json:"node"`
	Paths      Paths      `json:"paths"`
	Proxy      Proxy      `json:"proxy"`
	Artifacts  Artifacts  `json:"artifacts"`
	Agent      Agent      `json:"agent"`
	// ContinuousMonitoring makes the node follow its flexNodeConfig resource after the join. This
	// works only with a configuration that a provider has delivered.
	ContinuousMonitoring bool `json:"continuousMonitoring,omitempty"`
}

// Azure selects the cluster that the node joins and how the node authenticates. Exactly one of
// ServicePrincipal, ManagedIdentity, Arc and BootstrapToken authenticates the node;
// ServicePrincipal beside Arc onboards Arc, and with continuousMonitoring an identity beside
// BootstrapToken authenticates the machine to Azure.
type Azure struct {
	// SubscriptionID is the subscription of the machine's own Azure resources (Arc); default the
	// cluster's subscription.
	SubscriptionID string `json:"subscriptionId,omitempty" must:"guid"`
	// TenantID is the Entra tenant; needed by a service principal and by Arc.
	TenantID string `json:"tenantId,omitempty" must:"guid"`
	// Cloud is the Azure cloud; it decides the defaults of the two endpoints below.
	Cloud string `json:"cloud" must:"cloud"`
	// ResourceManagerEndpoint is the base URL of Azure Resource Manager.
	ResourceManagerEndpoint string `json:"resourceManagerEndpoint" must:"host"`
	// AuthorityHost is the base URL of Entra ID.
	AuthorityHost string `json:"authorityHost" must:"host"`
	// ServicePrincipal authenticates as an Entra application; beside an Arc section it registers
	// the machine with Arc.
	ServicePrincipal *ServicePrincipal `json:"servicePrincipal,omitempty"`
	// ManagedIdentity authenticates as the identity of the Azure VM; {} means the system-assigned
	// one.
	ManagedIdentity *ManagedIdentity `json:"managedIdentity,omitempty"`
	// BootstrapToken authenticates with a Kubernetes bootstrap token; needs node.kubelet.serverURL
	// and caCertData.
	BootstrapToken *BootstrapToken `json:"bootstrapToken,omitempty"`
	// Arc registers the machine with Azure Arc and authenticates as its identity.
	Arc           *Arc          `json:"arc,omitempty"`
	TargetCluster TargetCluster `json:"targetCluster"`
	// KubeletCredential authenticates kubelet when the node has an Azure identity: the identity's
	// token in each request, or a client certificate, which TLS bootstrap requests once with that
	// token.
	KubeletCredential string `json:"kubeletCredential,omitempty" must:"credential"`
	// Registries are the Azure Container Registries from which kubelet pulls images with the node's
	// Azure identity, such as contoso.azurecr.io, or *.azurecr.io for a whole domain. The identity
	// must have the role AcrPull there.
	Registries []string `json:"registries,omitempty" must:"registry"`
	// CLIUser is the local user whose Azure CLI login (az login) the service uses to enrol the machine
	// with Azure Arc; default root. Commands at a terminal use the login of the user who called sudo.
	CLIUser string `json:"cliUser,omitempty" must:"user"`
	// TargetAgentPoolName is the agent pool of the node; it has no effect in this release.
	TargetAgentPoolName string `json:"targetAgentPoolName,omitempty" must:"pool"`
}

// ServicePrincipal is an Entra application with exactly one of a secret, a file that holds the
// secret, or a certificate.
type ServicePrincipal struct {
	// TenantID is the tenant of the application; default azure.tenantId.
	TenantID string `json:"tenantId,omitempty" must:"guid"`
	// ClientID is the application (client) id; required in this section.
	ClientID string `json:"clientId" must:"guid"`
	// ClientSecret is the application's secret.
	ClientSecret Secret `json:"clientSecret,omitempty" must:"secret"`
	// ClientSecretFile is a file that holds the secret and nothing else, or a systemd credential
	// that does.
	ClientSecretFile string `json:"clientSecretFile,omitempty" must:"secret-file"`
	// SecretExpires is the day on which the secret expires in Entra ID.
	SecretExpires string `json:"secretExpires,omitempty" must:"date"`
	// CertificateFile is a PEM file with the application's certificate and private key.
	CertificateFile string `json:"certificateFile,omitempty" must:"path"`
}

// ManagedIdentity is the identity of an Azure VM; an empty ClientID means the system-assigned one.
type ManagedIdentity struct {
	// ClientID selects a user-assigned identity; empty means the system-assigned one.
	ClientID string `json:"clientId,omitempty" must:"guid"`
}

// BootstrapToken is the Kubernetes bootstrap token of a TLS bootstrap.
type BootstrapToken struct {
	// Token is the bootstrap token; required in this section.
	Token Secret `json:"token" must:"token"`
}

// Arc registers the machine with Azure Arc and uses its managed identity for the node.
type Arc struct {
	// Enabled turns this section on.
	Enabled *bool `json:"enabled,omitempty"`
	// MachineName is the name of the Arc machine; default the machine's host name.
	MachineName string `json:"machineName,omitempty" must:"machine"`
	// Tags are put on the Arc machine.
	Tags map[string]string `json:"tags,omitempty" keys:"tag" must:"tag-value"`
	// ResourceGroup is the resource group of the Arc machine; default the cluster's.
	ResourceGroup string `json:"resourceGroup,omitempty" must:"group"`
	// Location of the Arc machine; default azure.targetCluster.location.
	Location string `json:"location,omitempty" must:"location"`
	// AutoRoleAssignment makes the agent assign the roles on the cluster to the Arc identity, and
	// changes the default of azure.kubeletCredential to token. Otherwise the operator assigns the
	// roles, and the join lists the missing ones.
	AutoRoleAssignment *bool `json:"autoRoleAssignment,omitempty"`
	// Roles are the roles of the Arc identity on the cluster, by name or GUID. Default: three roles
	// with azure.kubeletCredential token, none with certificate.
	Roles []string `json:"roles,omitempty" must:"role"`
	// Package selects the source of the Arc agent's package, on a machine that has none.
	Package *ArcPackage `json:"package,omitempty"`
}

// ArcPackage is the APT repository of the Arc agent. Unset fields are those of Microsoft's
// repository for the machine's distribution.
type ArcPackage struct {
	// URL of the repository; http is accepted because the repository is signed.
	URL string `json:"url,omitempty" must:"http-url"`
	// Suite of the repository, such as noble; needed if Microsoft has none for the distribution.
	Suite string `json:"suite,omitempty" must:"suite"`
	// KeyFile is a file with the armored key that signs the repository, if it is not Microsoft's.
	KeyFile string `json:"keyFile,omitempty" must:"path"`
}

// Key reads the key that must have signed the repository.
func (p ArcPackage) Key() ([]byte, error) { return regular.ReadFile(p.KeyFile) }

// TargetCluster names the managed cluster that the node joins.
type TargetCluster struct {
	// ResourceID is the ARM id of the cluster; required; case-insensitive, kept as written.
	ResourceID string `json:"resourceId" must:"cluster"`
	// Location is the Azure region of the cluster; needed by Arc when azure.arc.location is not
	// set.
	Location string `json:"location,omitempty" must:"location"`
}

// Kubernetes selects the version of kubelet, kubectl and kubeadm.
type Kubernetes struct {
	// Version of kubelet, kubectl and kubeadm; a leading "v" is accepted. Default: the API server's
	// own version if its digests are known, otherwise the newest known version that is not newer.
	Version string `json:"version,omitempty" must:"kubernetes"`
	// URLTemplate is the URL of the directory that holds kubelet, kubectl and kubeadm, if it is not
	// the upstream directory.
	URLTemplate string `json:"urlTemplate,omitempty" must:"directory-url"`
}

// Containerd selects and tunes the container runtime.
type Containerd struct {
	// Version of containerd; a leading "v" is accepted. 1.7 works up to Kubernetes 1.35. The default
	// depends on the version of Kubernetes (versions.md).
	Version string `json:"version,omitempty" must:"containerd"`
	// PauseImage is the image of the container that holds a pod's namespaces.
	PauseImage string `json:"pauseImage" must:"image"`
	// MetricsAddress is the address at which containerd serves its metrics, without authentication.
	MetricsAddress string `json:"metricsAddress" must:"listen"`
}

// Runc selects the OCI runtime.
type Runc struct {
	// Version of runc; a leading "v" is accepted. The default depends on the version of containerd
	// (versions.md).
	Version string `json:"version,omitempty" must:"version"`
	// URL of the runc binary, or its template, if it is not the upstream URL. The binary must still
	// have the digest of the release.
	URL string `json:"url,omitempty" must:"runc-url"`
}

// CNI selects the CNI plugins and the pod network of this node.
type CNI struct {
	// Version of the reference CNI plugins; a leading "v" is accepted.
	Version string `json:"version" must:"cni"`
	// PodCIDR is the node's own pod subnet, of one address family. If it is empty, the cluster
	// allocates the subnets, which can be one of each family.
	PodCIDR string `json:"podCIDR,omitempty" must:"pod-cidr"`
	// NonMasqueradeCIDRs are the networks that pods reach with their own address, such as the
	// cluster's pod network; to all others they use the machine's address. Without any, pods keep
	// their own address only on this node. Default at the join: the cluster's pod network, if the
	// agent can read it from Azure (how-to/network.md); [] means none.
	NonMasqueradeCIDRs []string `json:"nonMasqueradeCIDRs,omitzero" must:"network"`
}

// Network holds the settings of the machine's own network.
type Network struct {
	// Firewall selects what the agent does if a firewall of the machine's owner blocks traffic that a
	// node needs: manage opens it until unbootstrap, check shows the commands that open it, ignore
	// does nothing (how-to/network.md).
	Firewall string `json:"firewall,omitempty" must:"firewall"`
	// Metadata blocks or allows the traffic of pods to the metadata services of clouds, which give a
	// machine's identity to every program that can send packets to them (explanation/security.md).
	Metadata string `json:"metadata,omitempty" must:"metadata"`
}

// NPD selects the node-problem-detector.
type NPD struct {
	// Version of the node-problem-detector; a leading "v" is accepted.
	Version string `json:"version" must:"version"`
}

// Node holds the settings of the Node object and its kubelet.
type Node struct {
	// MaxPods is the maximum number of pods on the node.
	MaxPods int `json:"maxPods" must:"max-pods"`
	// Labels of the Node. The agent always adds kubernetes.azure.com/managed=false, and
	// flexnode.azure.com/pod-cidr if cni.podCIDR is set.
	Labels map[string]string `json:"labels,omitempty" keys:"label" must:"label-value"`
	// Taints are the taints that the Node is registered with: "key=value:Effect" or "key:Effect".
	Taints  []string `json:"taints,omitempty" must:"taint"`
	Kubelet Kubelet  `json:"kubelet"`
	// AdminKubeconfig requests the kubeconfig of the cluster's administrator from Azure and keeps it
	// in admin.conf below paths.kubernetes.configDir, readable by root only; unbootstrap removes it.
	// The identity that joins must be allowed to list it. Its holder is an administrator of the
	// cluster.
	AdminKubeconfig bool `json:"adminKubeconfig,omitempty"`
}

// Kubelet holds the settings of kubelet and of its connection to the API server.
type Kubelet struct {
	// KubeReserved holds the resources that kubelet reserves for Kubernetes' own daemons. A name that
	// is left out gets the value of AKS: cpu 60m of one processor, 100m of two, 140m of four, and 10m
	// for each further one; memory 20Mi for each of maxPods plus 50Mi, at most a quarter of the
	// machine's.
	KubeReserved map[string]string `json:"kubeReserved,omitempty" keys:"reserved" must:"quantity"`
	// EvictionHard are eviction thresholds by signal; a signal that is not set keeps kubelet's
	// default.
	EvictionHard map[string]string `json:"evictionHard,omitempty" keys:"signal" must:"threshold"`
	// Verbosity is kubelet's log level.
	Verbosity int `json:"verbosity" must:"verbosity"`
	// ImageGCHighThreshold is the disk usage in percent above which kubelet removes unused images.
	ImageGCHighThreshold int `json:"imageGCHighThreshold" must:"percent"`
	// ImageGCLowThreshold is the disk usage in percent down to which kubelet removes images; lower
	// than the high threshold.
	ImageGCLowThreshold int `json:"imageGCLowThreshold" must:"percent"`
	// DNSServiceIP is the address of the cluster's DNS service. Default at the join: the address from
	// Azure or from the cluster's Service kube-system/kube-dns. It must be set if the agent can read
	// neither, as with a bootstrap token.
	DNSServiceIP string `json:"dnsServiceIP,omitempty" must:"dns"`
	// ServerURL is the URL of the API server.
	ServerURL string `json:"serverURL,omitempty" must:"host"`
	// CACertData is the cluster's CA: base64 of PEM certificates.
	CACertData string `json:"caCertData,omitempty" must:"ca"`
	// NodeIP is the address that the node announces, for machines with several addresses. Two
	// addresses, one of each family and separated by a comma, announce both.
	NodeIP string `json:"nodeIP,omitempty" must:"node-ip"`
	// SeccompDefault runs every container with the runtime's seccomp profile unless its pod sets
	// another.
	SeccompDefault *bool `json:"seccompDefault,omitempty"`
	// PodPidsLimit limits the processes and threads of one pod; -1 means no limit.
	PodPidsLimit *int `json:"podPidsLimit,omitempty" must:"pids"`
	// ContainerLogMaxSize is the size at which a container's log is rotated; default kubelet's, 10Mi.
	ContainerLogMaxSize string `json:"containerLogMaxSize,omitempty" must:"log-size"`
	// ContainerLogMaxFiles limits the files kept of a container's log; default kubelet's, 5.
	ContainerLogMaxFiles *int `json:"containerLogMaxFiles,omitempty" must:"log-files"`
	// ServerTLSBootstrap makes kubelet request its serving certificate from the cluster instead of
	// signing one itself. Use it only in clusters that approve such requests, as flexnode-rp does for
	// its nodes, but not with azure.kubeletCredential token: the request is then not the node's.
	// Otherwise kubectl logs and exec do not work (condition ServingCertificate).
	ServerTLSBootstrap bool `json:"serverTLSBootstrap,omitempty"`
	// Swap is off or LimitedSwap; default off. off turns off all swap of the machine while it is a
	// node. LimitedSwap leaves swap on and lets Burstable pods use their share; it needs Kubernetes
	// 1.30 and control groups of version 2.
	Swap string `json:"swap,omitempty" must:"swap"`
	// ShutdownGracePeriod is the time that a shutdown or reboot of the machine waits for pods to
	// terminate, as a Go duration; with 0s it does not wait. logind grants no more than 30s where
	// unattended-upgrades is installed, and kubelet then does not wait either.
	ShutdownGracePeriod string `json:"shutdownGracePeriod,omitempty" must:"stop"`
	// CriticalGracePeriod is the last part of shutdownGracePeriod, in which critical pods terminate;
	// default a third of it, at most 15s.
	CriticalGracePeriod string `json:"shutdownGracePeriodCriticalPods,omitempty" must:"stop"`
}

// Paths are the standard directories, for hosts that have them elsewhere.
type Paths struct {
	Kubernetes KubernetesPaths `json:"kubernetes"`
	CNI        CNIPaths        `json:"cni"`
}

// KubernetesPaths are kubelet's directories.
type KubernetesPaths struct {
	// ConfigDir holds kubelet's configuration.
	ConfigDir string `json:"configDir" must:"dir"`
	// CertsDir holds the cluster's CA.
	CertsDir string `json:"certsDir" must:"dir"`
	// ManifestsDir holds static pods.
	ManifestsDir string `json:"manifestsDir" must:"dir"`
	// VolumePluginDir holds volume plugins.
	VolumePluginDir string `json:"volumePluginDir" must:"dir"`
	// KubeletDir is kubelet's root directory. A node does not move it. It must contain nothing else,
	// and unbootstrap removes it.
	KubeletDir string `json:"kubeletDir" must:"own-dir"`
}

// CNIPaths are the directories of CNI plugins and network configurations.
type CNIPaths struct {
	// BinDir holds the CNI plugins.
	BinDir string `json:"binDir" must:"dir"`
	// ConfDir holds the network configurations.
	ConfDir string `json:"confDir" must:"dir"`
}

// Proxy is the HTTP proxy of the agent, containerd and kubelet.
type Proxy struct {
	// HTTP is the URL of the proxy for http requests; it may contain user and password.
	HTTP Secret `json:"http,omitempty" must:"proxy"`
	// HTTPS is the URL of the proxy for https requests; it may contain user and password.
	HTTPS Secret `json:"https,omitempty" must:"proxy"`
	// NoProxy are hosts, domains and CIDRs that never use the proxy, in addition to the built-in ones.
	NoProxy []string `json:"noProxy,omitempty" must:"no-proxy"`
}

// Artifacts selects the sources of binaries.
type Artifacts struct {
	// Mirror is a base URL that serves <mirror>/<upstream host>/<upstream path>; it is tried before
	// upstream.
	Mirror string `json:"mirror,omitempty" must:"url"`
	// Mirrors are further base URLs, tried in order after the mirror and before upstream.
	Mirrors []string `json:"mirrors,omitempty" must:"url"`
	// TrustMirrorChecksums makes the agent read the checksum of a version without a pinned digest from
	// the mirrors, for machines that cannot reach upstream. A mirror then vouches for its own files. A
	// provider may set this only if the policy of the machine allows it.
	TrustMirrorChecksums bool `json:"trustMirrorChecksums,omitempty"`
	// Directory holds files in the same layout, for hosts without a network. The agent then downloads
	// nothing.
	Directory string `json:"directory,omitempty" must:"path"`
	// Overrides replaces URL and digest of an artifact, for private builds. A key is the name of an
	// artifact, or its name and a version (kubelet@1.36.3), which takes precedence for that version.
	Overrides map[string]Override `json:"overrides,omitempty" keys:"artifact"`
	// AllowVulnerable accepts versions from which a container can break out (versions.md). Without it
	// the agent accepts such a version only if it already runs.
	AllowVulnerable bool `json:"allowVulnerable,omitempty"`
}

// Override replaces what is known about one artifact.
type Override struct {
	// URL replaces the upstream URL; empty keeps it.
	URL string `json:"url,omitempty" must:"url"`
	// SHA256 is the digest of the file as it is published: a plain binary or a .tar.gz; required in
	// this section.
	SHA256 string `json:"sha256" must:"digest"`
	// TarSHA256 is the digest of the uncompressed tar of an archive; it also allows .tar.zst variants.
	TarSHA256 string `json:"tarSHA256,omitempty" must:"digest"`
	// Size is the length of the file in bytes. The agent reads no more than that; 0 means unknown.
	Size int64 `json:"size,omitempty" must:"size"`
}

// Agent holds the settings of the agent itself.
type Agent struct {
	// LogLevel is the lowest level that is logged; "warn" is accepted for "warning". The service uses
	// another one from its next start on.
	LogLevel string `json:"logLevel" must:"log-level"`
	// LogFormat is the format of the log's lines. The service uses another one from its next start on.
	LogFormat string `json:"logFormat" must:"log-format"`
	// LogDir holds aks-flex-node.log, which unbootstrap leaves in place. The service uses another one
	// from its next start on.
	LogDir string `json:"logDir" must:"own-dir"`
	// NodeName is the name of the Node object; default the machine's host name in lower case.
	NodeName string `json:"nodeName" must:"node-name"`
	// DriftPolicy selects what the agent does when the host is no longer as configured: report the
	// drift, repair it, or not detect it.
	DriftPolicy string `json:"driftPolicy" must:"drift"`
	// DriftPolicies are the policies of individual kinds, by the kind's name, if they differ from
	// driftPolicy.
	DriftPolicies map[string]string `json:"driftPolicies,omitempty" keys:"drift-kind" must:"drift"`
	// CheckInterval is the time between checks of the machine for drift, as a Go duration, randomised
	// by a fifth; default one minute. The agent always checks within seconds when the kernel or
	// systemd reports a change.
	CheckInterval string `json:"checkInterval,omitempty" must:"check"`
	// ReadyTimeout limits the wait for the Node to be Ready, as a Go duration. With less than 20s, a
	// slow renewal of the Node's lease by kubelet can roll a change back.
	ReadyTimeout string `json:"readyTimeout" must:"ready"`
	// UpgradePolicy describes how a change of the configuration reaches the node.
	UpgradePolicy UpgradePolicy `json:"upgradePolicy,omitzero"`
	// Monitoring describes how an agent follows its resource.
	Monitoring Monitoring `json:"monitoring,omitzero"`
	// Metrics selects where the service offers its metrics.
	Metrics Metrics `json:"metrics,omitzero"`
}

// Metrics holds the settings of the service's metrics, in the text format of Prometheus.
type Metrics struct {
	// Listen is the address that serves metrics over HTTP, without authentication; default none.
	Listen string `json:"listen,omitempty" must:"loopback"`
	// Textfile is a file to which the agent writes metrics at each check, for the textfile collector
	// of node_exporter. Its directory must exist and be writable by root only.
	Textfile string `json:"textfile,omitempty" must:"textfile"`
}

// UpgradePolicy controls how a change of the configuration is made on a node.
type UpgradePolicy struct {
	// Drain selects when the agent drains the node before it changes the machine: for another minor
	// version of Kubernetes, major version of containerd or cni.podCIDR, for every change but of
	// credentials and the API server's address and CA, or never.
	Drain string `json:"drain,omitempty" must:"drain"`
	// Deadline limits the drain, as a Go duration. If the pods are not evicted in time, the change
	// waits and the machine is unchanged.
	Deadline string `json:"deadline,omitempty" must:"deadline"`
	// DrainOptions select the pods that a drain may delete, as in kubectl drain.
	DrainOptions DrainOptions `json:"drainOptions,omitzero"`
	// MaintenanceWindow is when an agent that follows its resource may begin a change that restarts or
	// drains. A new address or CA of the API server does not wait, nor does a change that a person
	// starts.
	MaintenanceWindow *MaintenanceWindow `json:"maintenanceWindow,omitempty"`
}

// DrainOptions select the pods that a drain may delete.
type DrainOptions struct {
	// Force deletes pods without a controller, which are not created again. Without it such a pod
	// blocks the change.
	Force bool `json:"force,omitempty"`
	// DeleteEmptyDir evicts pods with an emptyDir volume, whose data is lost. With false such a pod
	// blocks the change.
	DeleteEmptyDir *bool `json:"deleteEmptyDir,omitempty"`
}

// MaintenanceWindow is a period that recurs each week.
type MaintenanceWindow struct {
	// Days are the days on which the window begins; default every day.
	Days []string `json:"days,omitempty" must:"day"`
	// Start is the time of day at which the window begins; required in this section.
	Start string `json:"start" must:"time"`
	// Duration is the length of the window, as a Go duration; required in this section.
	Duration string `json:"duration" must:"window"`
	// UTCOffset is the offset of days and start from UTC, without daylight saving time; default
	// +00:00.
	UTCOffset string `json:"utcOffset,omitempty" must:"offset"`
}

// ResourceManager is the monitoring.endpoint of a node that polls Azure Resource Manager.
const ResourceManager = "resourceManager"

// Monitoring describes how an agent follows its flexNodeConfig resource.
type Monitoring struct {
	// Endpoint is the base URL of the resource provider, which the machine polls with its own key.
	// With "resourceManager" it polls azure.resourceManagerEndpoint with the identity of section
	// azure. Default resourceManager in a file; a provider delivers its own URL.
	Endpoint string `json:"endpoint,omitempty" must:"endpoint"`
	// Audience is the provider's application in Entra ID. A machine whose configuration has no
	// enrolment secret registers its key with a token for this application. A provider sets it.
	Audience string `json:"audience,omitempty" must:"audience"`
	// Interval is the mean time between two polls, as a Go duration; default 30s. The endpoint's
	// response overrides it.
	Interval string `json:"interval,omitempty" must:"poll"`
}

// PollInterval returns agent.monitoring.interval; 0 if it is not set.
func (c Config) PollInterval() time.Duration { return duration(c.Agent.Monitoring.Interval) }

// CheckInterval returns agent.checkInterval; 0 if it is not set.
func (c Config) CheckInterval() time.Duration { return duration(c.Agent.CheckInterval) }

// ReadyTimeout returns agent.readyTimeout; Parse has validated it.
func (c Config) ReadyTimeout() time.Duration { return duration(c.Agent.ReadyTimeout) }

// EndsPods reports whether kubelet terminates pods before the machine shuts down.
func (k Kubelet) EndsPods() bool { return duration(k.ShutdownGracePeriod) > 0 }
