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
	// ContinuousMonitoring makes the node follow its flexNodeConfig resource after it has joined; only
	// a configuration that a provider has delivered is followed.
	ContinuousMonitoring bool `json:"continuousMonitoring,omitempty"`
}

// Azure selects the cluster that the node joins and how the node authenticates. Exactly one of
// ServicePrincipal, ManagedIdentity, Arc and BootstrapToken authenticates the node;
// ServicePrincipal beside Arc onboards Arc, and with continuousMonitoring an identity beside
// BootstrapToken authenticates the machine to Azure.
type Azure struct {
	// SubscriptionID is the subscription of the machine's own Azure resources (Arc); default that
	// of the cluster.
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
	// Registries are the registries from which kubelet pulls images with the node's Azure identity,
	// which needs the role AcrPull there: Azure Container Registries, such as contoso.azurecr.io, or
	// *.azurecr.io for all of a domain.
	Registries []string `json:"registries,omitempty" must:"registry"`
	// CLIUser is the user of this machine whose login of the Azure CLI (az login) the service uses to
	// enrol it with Azure Arc; default root's. At a terminal the user who called sudo counts.
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
	// Enabled enables this section.
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
	// token the default of azure.kubeletCredential; otherwise the operator assigns them, and the join
	// reports the missing ones.
	AutoRoleAssignment *bool `json:"autoRoleAssignment,omitempty"`
	// Roles are the roles of the Arc identity on the cluster, by name or GUID; default: three with
	// azure.kubeletCredential token, none with certificate.
	Roles []string `json:"roles,omitempty" must:"role"`
	// Package selects the source of the Arc agent's package, on a machine that has none.
	Package *ArcPackage `json:"package,omitempty"`
}

// ArcPackage is the APT repository of the Arc agent. Unset fields are those of Microsoft's
// repository for the machine's distribution.
type ArcPackage struct {
	// URL of the repository; it may be http, since it is signed.
	URL string `json:"url,omitempty" must:"http-url"`
	// Suite of the repository, such as noble; needed where Microsoft has none for the distribution.
	Suite string `json:"suite,omitempty" must:"suite"`
	// KeyFile is a file with the armored key that must have signed the repository, for one that is
	// not Microsoft's.
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
	// own version where its digests are known, else the newest known one that is not newer.
	Version string `json:"version,omitempty" must:"kubernetes"`
	// URLTemplate is the URL of the directory that holds kubelet, kubectl and kubeadm, when it is
	// not the upstream one.
	URLTemplate string `json:"urlTemplate,omitempty" must:"directory-url"`
}

// Containerd selects and tunes the container runtime.
type Containerd struct {
	// Version of containerd; a leading "v" is accepted. 1.7 works up to Kubernetes 1.35. Default: by
	// the version of Kubernetes (versions.md).
	Version string `json:"version,omitempty" must:"containerd"`
	// PauseImage is the image of the container that holds a pod's namespaces.
	PauseImage string `json:"pauseImage" must:"image"`
	// MetricsAddress is the address at which containerd serves its metrics, without authentication.
	MetricsAddress string `json:"metricsAddress" must:"listen"`
}

// Runc selects the OCI runtime.
type Runc struct {
	// Version of runc; a leading "v" is accepted. Default: by the version of containerd (versions.md).
	Version string `json:"version,omitempty" must:"version"`
	// URL of the runc binary, or the template of one, when it is not the upstream one; the digest is
	// still that of the release.
	URL string `json:"url,omitempty" must:"runc-url"`
}

// CNI selects the CNI plugins and the pod network of this node.
type CNI struct {
	// Version of the reference CNI plugins; a leading "v" is accepted.
	Version string `json:"version" must:"cni"`
	// PodCIDR is the node's own pod subnet, of one family; empty means what the cluster allocates to
	// the Node, which can be one of each.
	PodCIDR string `json:"podCIDR,omitempty" must:"pod-cidr"`
	// NonMasqueradeCIDRs are the networks that pods reach with their own address, such as the
	// cluster's pod network; elsewhere they have the machine's. Without any, pods have their own
	// address on this node only. Default at the join: the cluster's pod network, if Azure is asked for
	// the cluster and returns it (how-to/network.md); [] is none.
	NonMasqueradeCIDRs []string `json:"nonMasqueradeCIDRs,omitzero" must:"network"`
}

// Network holds the settings of the machine's own network.
type Network struct {
	// Firewall is the reaction to a firewall of the machine's owner that stops a node's traffic:
	// manage opens what is needed and closes it at the end, check shows the commands that open it,
	// ignore does nothing (how-to/network.md).
	Firewall string `json:"firewall,omitempty" must:"firewall"`
	// Metadata is block or allow: whether pods are kept from the metadata services of clouds, which
	// give a machine's identity to every program that can send packets to them
	// (explanation/security.md).
	Metadata string `json:"metadata,omitempty" must:"metadata"`
}

// NPD selects the node-problem-detector.
type NPD struct {
	// Version of the node-problem-detector; a leading "v" is accepted.
	Version string `json:"version" must:"version"`
}

// Node holds the settings of the Node object and its kubelet.
type Node struct {
	// MaxPods is the number of pods that the node takes.
	MaxPods int `json:"maxPods" must:"max-pods"`
	// Labels of the Node; kubernetes.azure.com/managed=false is always among them, and
	// flexnode.azure.com/pod-cidr if cni.podCIDR is set.
	Labels map[string]string `json:"labels,omitempty" keys:"label" must:"label-value"`
	// Taints are the taints that the Node is registered with: "key=value:Effect" or "key:Effect".
	Taints  []string `json:"taints,omitempty" must:"taint"`
	Kubelet Kubelet  `json:"kubelet"`
	// AdminKubeconfig asks Azure for the kubeconfig of the cluster's administrator and keeps it in
	// admin.conf below paths.kubernetes.configDir, for root alone; unbootstrap removes it. The
	// identity that joins must be allowed to list it. Its holder is administrator of the cluster.
	AdminKubeconfig bool `json:"adminKubeconfig,omitempty"`
}

// Kubelet holds the settings of kubelet and of its connection to the API server.
type Kubelet struct {
	// KubeReserved holds the resources that kubelet reserves for Kubernetes' own daemons. A name that
	// is left out has the value of AKS: of one processor 60m, two 100m, four 140m, and 10m for each
	// more; of memory 20Mi for each of maxPods and 50Mi, but no more than a quarter.
	KubeReserved map[string]string `json:"kubeReserved,omitempty" keys:"reserved" must:"quantity"`
	// EvictionHard are eviction thresholds by signal; a signal that is not set keeps kubelet's
	// default.
	EvictionHard map[string]string `json:"evictionHard,omitempty" keys:"signal" must:"threshold"`
	// Verbosity is kubelet's log level.
	Verbosity int `json:"verbosity" must:"verbosity"`
	// ImageGCHighThreshold is the disk usage in percent above which unused images are removed.
	ImageGCHighThreshold int `json:"imageGCHighThreshold" must:"percent"`
	// ImageGCLowThreshold is the disk usage in percent down to which images are removed; lower than
	// the high threshold.
	ImageGCLowThreshold int `json:"imageGCLowThreshold" must:"percent"`
	// DNSServiceIP is the address of the cluster's DNS service. Default at the join: that of
	// Azure or of the cluster's Service kube-system/kube-dns; must be set where neither can be read,
	// as with a bootstrap token.
	DNSServiceIP string `json:"dnsServiceIP,omitempty" must:"dns"`
	// ServerURL is the URL of the API server.
	ServerURL string `json:"serverURL,omitempty" must:"host"`
	// CACertData is the cluster's CA: base64 of PEM certificates.
	CACertData string `json:"caCertData,omitempty" must:"ca"`
	// NodeIP is the address that the node announces, for machines with several; one of each family,
	// separated by a comma, announces both.
	NodeIP string `json:"nodeIP,omitempty" must:"node-ip"`
	// SeccompDefault makes every container run with the runtime's seccomp profile unless its pod says
	// otherwise.
	SeccompDefault *bool `json:"seccompDefault,omitempty"`
	// PodPidsLimit limits the processes and threads of one pod; -1 is no limit.
	PodPidsLimit *int `json:"podPidsLimit,omitempty" must:"pids"`
	// ContainerLogMaxSize is the size at which a container's log is rotated; default kubelet's, 10Mi.
	ContainerLogMaxSize string `json:"containerLogMaxSize,omitempty" must:"log-size"`
	// ContainerLogMaxFiles limits the files kept of a container's log; default kubelet's, 5.
	ContainerLogMaxFiles *int `json:"containerLogMaxFiles,omitempty" must:"log-files"`
	// ServerTLSBootstrap makes kubelet request its serving certificate from the cluster instead of
	// signing one itself; only for clusters where such requests are approved, as flexnode-rp does for
	// its nodes, else kubectl logs and exec do not work (condition ServingCertificate).
	ServerTLSBootstrap bool `json:"serverTLSBootstrap,omitempty"`
	// Swap is off, which turns off all swap of the machine as long as it is a node, or LimitedSwap,
	// which leaves it and lets pods without a guarantee use their part; default off. LimitedSwap
	// needs Kubernetes 1.30 and control groups of version 2.
	Swap string `json:"swap,omitempty" must:"swap"`
	// ShutdownGracePeriod is the time that a shutdown or reboot of the machine waits for pods to end,
	// as a Go duration; 0s does not wait.
	ShutdownGracePeriod string `json:"shutdownGracePeriod,omitempty" must:"stop"`
	// CriticalGracePeriod is the last part of shutdownGracePeriod, in which critical
	// pods end; default a third of it, 15s at most.
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
	// KubeletDir is kubelet's root directory; nothing else may be in it, and unbootstrap removes
	// it.
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
	// HTTP is the URL of the proxy for http requests; it may hold user and password.
	HTTP Secret `json:"http,omitempty" must:"proxy"`
	// HTTPS is the URL of the proxy for https requests; it may hold user and password.
	HTTPS Secret `json:"https,omitempty" must:"proxy"`
	// NoProxy are hosts, domains and CIDRs that are reached directly, beside those that always are.
	NoProxy []string `json:"noProxy,omitempty" must:"no-proxy"`
}

// Artifacts selects the sources of binaries.
type Artifacts struct {
	// Mirror is a base URL that serves <mirror>/<upstream host>/<upstream path>; it is tried before
	// upstream.
	Mirror string `json:"mirror,omitempty" must:"url"`
	// Mirrors are further base URLs, tried in order after the mirror and before upstream.
	Mirrors []string `json:"mirrors,omitempty" must:"url"`
	// TrustMirrorChecksums reads the checksum of a version without a pinned digest from the mirrors,
	// for machines that reach no upstream: a mirror then vouches for its own files. A provider may set
	// it only where the policy of the machine allows that.
	TrustMirrorChecksums bool `json:"trustMirrorChecksums,omitempty"`
	// Directory holds the same layout as files, for hosts without a network; nothing is downloaded
	// then.
	Directory string `json:"directory,omitempty" must:"path"`
	// Overrides replaces url and digest of an artifact, for private builds: by its name, or, before
	// that, by name and version (kubelet@1.36.3), for that version only.
	Overrides map[string]Override `json:"overrides,omitempty" keys:"artifact"`
	// AllowVulnerable accepts versions with which a container can break out (versions.md); without it
	// only versions that run already are accepted.
	AllowVulnerable bool `json:"allowVulnerable,omitempty"`
}

// Override replaces what is known about one artifact.
type Override struct {
	// URL replaces the upstream URL; empty keeps it.
	URL string `json:"url,omitempty" must:"url"`
	// SHA256 is the digest of the file as it is published: a plain binary or a .tar.gz; required in
	// this section.
	SHA256 string `json:"sha256" must:"digest"`
	// TarSHA256 is the digest of the uncompressed tar of an archive; with it .tar.zst variants can
	// be used too.
	TarSHA256 string `json:"tarSHA256,omitempty" must:"digest"`
	// Size is the length of the file in bytes, more of which is not read; 0 when unknown.
	Size int64 `json:"size,omitempty" must:"size"`
}

// Agent holds the settings of the agent itself.
type Agent struct {
	// LogLevel is the lowest level that is logged; "warn" is accepted for "warning".
	LogLevel string `json:"logLevel" must:"log-level"`
	// LogFormat is the format of the log's lines.
	LogFormat string `json:"logFormat" must:"log-format"`
	// LogDir holds aks-flex-node.log, which unbootstrap leaves in place.
	LogDir string `json:"logDir" must:"own-dir"`
	// NodeName is the name of the Node object; default the machine's host name in lower case.
	NodeName string `json:"nodeName" must:"node-name"`
	// DriftPolicy is the reaction to drift, when the host is no longer as configured: drift is
	// reported, repaired, or not detected.
	DriftPolicy string `json:"driftPolicy" must:"drift"`
	// DriftPolicies are policies of single kinds of things, by the kind's name, where they differ
	// from driftPolicy.
	DriftPolicies map[string]string `json:"driftPolicies,omitempty" keys:"drift-kind" must:"drift"`
	// CheckInterval is the time between comparisons of the machine with what was applied, spread by a
	// fifth, as a Go duration; default one minute. Changes that the kernel or systemd
	// reports are compared within seconds in any case.
	CheckInterval string `json:"checkInterval,omitempty" must:"check"`
	// ReadyTimeout bounds the wait for the Node to be Ready, as a Go duration; with less than 20s a
	// change can be rolled back only because kubelet was slow to renew the Node's lease.
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
	// Textfile is a file that metrics are written to at each check, for the textfile collector of
	// node_exporter; its directory must be there, and only root may write to it.
	Textfile string `json:"textfile,omitempty" must:"textfile"`
}

// UpgradePolicy controls how a change of the configuration is made on a node.
type UpgradePolicy struct {
	// Drain selects when the pods move to other nodes before the machine is changed: at a change of
	// the Kubernetes minor version, at every change, or never.
	Drain string `json:"drain,omitempty" must:"drain"`
	// Deadline bounds that move, as a Go duration; a change whose pods do not move in time waits, and
	// nothing was touched.
	Deadline string `json:"deadline,omitempty" must:"deadline"`
	// DrainOptions are the pods that the move may delete, as in kubectl drain.
	DrainOptions DrainOptions `json:"drainOptions,omitzero"`
	// MaintenanceWindow is the time in which an agent that follows its resource may begin a change; a
	// change that a person starts begins at once.
	MaintenanceWindow *MaintenanceWindow `json:"maintenanceWindow,omitempty"`
}

// DrainOptions select the pods that a drain may delete.
type DrainOptions struct {
	// Force deletes pods without a controller, which run nowhere afterwards; without it such a pod
	// blocks the change.
	Force bool `json:"force,omitempty"`
	// DeleteEmptyDir moves pods with an emptyDir volume, whose data is lost; false: such a pod blocks
	// the change.
	DeleteEmptyDir *bool `json:"deleteEmptyDir,omitempty"`
}

// MaintenanceWindow is a weekly recurring time.
type MaintenanceWindow struct {
	// Days are the days on which a window begins; none means every day.
	Days []string `json:"days,omitempty" must:"day"`
	// Start is the time of day at which it begins; required in this section.
	Start string `json:"start" must:"time"`
	// Duration is the length of the window, as a Go duration; required in this section.
	Duration string `json:"duration" must:"window"`
	// UTCOffset is the offset of days and start, without daylight saving time; default +00:00.
	UTCOffset string `json:"utcOffset,omitempty" must:"offset"`
}

// ResourceManager is the monitoring.endpoint of a node that polls Azure Resource Manager.
const ResourceManager = "resourceManager"

// Monitoring describes how an agent follows its flexNodeConfig resource.
type Monitoring struct {
	// Endpoint is the base URL of the resource provider, which the machine polls with its own key;
	// "resourceManager" is azure.resourceManagerEndpoint, polled with the identity of section azure;
	// default resourceManager in a file, the provider's own URL in what a provider delivers.
	Endpoint string `json:"endpoint,omitempty" must:"endpoint"`
	// Audience is the provider's application in Entra ID. A machine whose configuration has no
	// enrolment secret registers its key with a token for it; a provider fills it in.
	Audience string `json:"audience,omitempty" must:"audience"`
	// Interval is the mean time between two polls, as a Go duration; default 30s. The
	// endpoint's answer overrides it.
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
