// Package config is the agent's configuration: the JSON document a user writes, its defaults, its validation and its
// redaction. It reads bytes and returns values; it touches neither network nor host. The agent's verbs call Load; everything
// after them sees only a valid Config.
package config

// Config is the whole configuration of one node. Load returns it complete: every default is filled in and every value is
// valid, so readers need no fallbacks of their own. Field documentation is the source of docs/configuration.md.
type Config struct {
	Azure      Azure      `json:"azure"`
	Kubernetes Kubernetes `json:"kubernetes"`
	Containerd Containerd `json:"containerd"`
	Runc       Runc       `json:"runc"`
	CNI        CNI        `json:"cni"`
	NPD        NPD        `json:"npd"`
	Node       Node       `json:"node"`
	Paths      Paths      `json:"paths"`
	Proxy      Proxy      `json:"proxy"`
	Artifacts  Artifacts  `json:"artifacts"`
	Agent      Agent      `json:"agent"`
	// ContinuousMonitoring tells whether the node follows its flexNodeConfig resource after it has joined.
	ContinuousMonitoring bool `json:"continuousMonitoring,omitempty"`
}

// Azure says which cluster the node joins and how it proves who it is. Exactly one of ServicePrincipal, ManagedIdentity,
// Arc and BootstrapToken authenticates the node; ServicePrincipal beside Arc onboards Arc.
type Azure struct {
	SubscriptionID          string            `json:"subscriptionId,omitempty"`
	TenantID                string            `json:"tenantId,omitempty"`
	Cloud                   string            `json:"cloud,omitempty"`
	ResourceManagerEndpoint string            `json:"resourceManagerEndpoint,omitempty"`
	AuthorityHost           string            `json:"authorityHost,omitempty"`
	ServicePrincipal        *ServicePrincipal `json:"servicePrincipal,omitempty"`
	ManagedIdentity         *ManagedIdentity  `json:"managedIdentity,omitempty"`
	BootstrapToken          *BootstrapToken   `json:"bootstrapToken,omitempty"`
	Arc                     *Arc              `json:"arc,omitempty"`
	TargetCluster           TargetCluster     `json:"targetCluster"`
	TargetAgentPoolName     string            `json:"targetAgentPoolName,omitempty"`
}

// ServicePrincipal is an Entra application with a secret or a certificate.
type ServicePrincipal struct {
	TenantID         string `json:"tenantId,omitempty"`
	ClientID         string `json:"clientId"`
	ClientSecret     Secret `json:"clientSecret,omitempty"`
	ClientSecretFile string `json:"clientSecretFile,omitempty"`
	CertificateFile  string `json:"certificateFile,omitempty"`
}

// ManagedIdentity is the identity of an Azure VM; an empty ClientID means the system-assigned one.
type ManagedIdentity struct {
	ClientID string `json:"clientId,omitempty"`
}

// BootstrapToken is a Kubernetes bootstrap token, good for one join.
type BootstrapToken struct {
	Token Secret `json:"token"`
}

// Arc registers the machine with Azure Arc, whose managed identity then is the node's.
type Arc struct {
	Enabled            *bool             `json:"enabled,omitempty"`
	MachineName        string            `json:"machineName,omitempty"`
	Tags               map[string]string `json:"tags,omitempty"`
	ResourceGroup      string            `json:"resourceGroup,omitempty"`
	Location           string            `json:"location,omitempty"`
	AutoRoleAssignment *bool             `json:"autoRoleAssignment,omitempty"`
}

// TargetCluster names the managed cluster that the node joins.
type TargetCluster struct {
	// ResourceID is the ARM id of the cluster; case-insensitive, kept as written.
	ResourceID string `json:"resourceId"`
	Location   string `json:"location,omitempty"`
}

// Kubernetes selects the version of kubelet, kubectl and kubeadm.
type Kubernetes struct {
	Version     string `json:"version"`
	URLTemplate string `json:"urlTemplate,omitempty"`
}

// Containerd selects and tunes the container runtime.
type Containerd struct {
	Version        string `json:"version"`
	PauseImage     string `json:"pauseImage"`
	MetricsAddress string `json:"metricsAddress"`
}

// Runc selects the OCI runtime.
type Runc struct {
	Version string `json:"version"`
	URL     string `json:"url,omitempty"`
}

// CNI selects the CNI plugins and the pod network of this node.
type CNI struct {
	Version string `json:"version"`
	// PodCIDR is the node's own pod subnet; empty means the podCIDR that the cluster allocates to the Node.
	PodCIDR string `json:"podCIDR,omitempty"`
}

// NPD selects the node-problem-detector.
type NPD struct {
	Version string `json:"version"`
}

// Node is what the Node object and its kubelet shall be like.
type Node struct {
	MaxPods int               `json:"maxPods"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Taints are "key=value:Effect" or "key:Effect".
	Taints  []string `json:"taints,omitempty"`
	Kubelet Kubelet  `json:"kubelet"`
}

// Kubelet holds the settings of kubelet and of its way to the API server.
type Kubelet struct {
	KubeReserved         map[string]string `json:"kubeReserved,omitempty"`
	EvictionHard         map[string]string `json:"evictionHard,omitempty"`
	Verbosity            int               `json:"verbosity"`
	ImageGCHighThreshold int               `json:"imageGCHighThreshold"`
	ImageGCLowThreshold  int               `json:"imageGCLowThreshold"`
	DNSServiceIP         string            `json:"dnsServiceIP"`
	ServerURL            string            `json:"serverURL,omitempty"`
	// CACertData is the cluster's CA: base64 of PEM certificates.
	CACertData string `json:"caCertData,omitempty"`
	NodeIP     string `json:"nodeIP,omitempty"`
}

// Paths are the directories of the documents, for hosts that keep them elsewhere.
type Paths struct {
	Kubernetes KubernetesPaths `json:"kubernetes"`
	CNI        CNIPaths        `json:"cni"`
}

// KubernetesPaths are kubelet's directories.
type KubernetesPaths struct {
	ConfigDir       string `json:"configDir"`
	CertsDir        string `json:"certsDir"`
	ManifestsDir    string `json:"manifestsDir"`
	VolumePluginDir string `json:"volumePluginDir"`
	KubeletDir      string `json:"kubeletDir"`
}

// CNIPaths are where plugins and network configurations live.
type CNIPaths struct {
	BinDir  string `json:"binDir"`
	ConfDir string `json:"confDir"`
}

// Proxy is the HTTP proxy of agent, containerd and kubelet.
type Proxy struct {
	HTTP  string `json:"http,omitempty"`
	HTTPS string `json:"https,omitempty"`
	// NoProxy lists hosts, domains and CIDRs that are reached directly, beside those that always are.
	NoProxy []string `json:"noProxy,omitempty"`
}

// Artifacts says where binaries come from.
type Artifacts struct {
	// Mirror is an https base URL that serves <Mirror>/<upstream host>/<upstream path>; it is asked before upstream.
	Mirror string `json:"mirror,omitempty"`
	// Mirrors are further base URLs, tried in order after Mirror and before upstream.
	Mirrors []string `json:"mirrors,omitempty"`
	// Directory holds the same layout as files, for hosts without a network; nothing is fetched then.
	Directory string `json:"directory,omitempty"`
	// Overrides replaces url and digest of an artifact by its name (kubelet, kubectl, kubeadm, containerd, runc, cni-plugins,
	// node-problem-detector), for private builds.
	Overrides map[string]Override `json:"overrides,omitempty"`
}

// Override replaces what is known about one artifact.
type Override struct {
	// URL replaces the upstream URL; https. Empty keeps it.
	URL string `json:"url,omitempty"`
	// SHA256 is the digest (hex) of the file as upstream publishes it: a plain binary or a .tar.gz.
	SHA256 string `json:"sha256"`
	// TarSHA256 is the digest (hex) of the uncompressed tar of an archive; with it .tar.zst variants can be used too.
	TarSHA256 string `json:"tarSHA256,omitempty"`
	// Size is the length of the file in bytes, for progress; 0 when unknown.
	Size int64 `json:"size,omitempty"`
}

// Agent is about the agent itself.
type Agent struct {
	LogLevel string `json:"logLevel"`
	LogDir   string `json:"logDir"`
	// NodeName is the name of the Node object; default the machine's host name in lower case.
	NodeName string `json:"nodeName"`
	// DriftPolicy is report, repair or off.
	DriftPolicy string `json:"driftPolicy"`
	// ReadyTimeout bounds the wait for the Node to be Ready, as a Go duration ("5m").
	ReadyTimeout string `json:"readyTimeout"`
}
