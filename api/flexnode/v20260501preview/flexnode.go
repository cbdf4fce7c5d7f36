// Package v20260501preview is flexNodeConfig as it is on the wire with api-version
// 2026-05-01-preview: what a caller of the resource provider writes and reads, and what a node is
// handed out. It uses the standard library only, so that every program can speak it.
//
// The contract itself is api/typespec/main.tsp; docs/api has the OpenAPI document that it yields.
package v20260501preview

import (
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
)

// The resource type and its only version.
const (
	APIVersion   = agentapi.Version
	ResourceType = "Microsoft.ContainerService/managedClusters/flexNodeConfig"
)

// FlexNodeConfig is the configuration of one node: an ARM proxy resource below its managed cluster.
type FlexNodeConfig struct {
	ID         string      `json:"id,omitempty"`
	Name       string      `json:"name,omitempty"`
	Type       string      `json:"type,omitempty"`
	ETag       string      `json:"eTag,omitempty"`
	SystemData *SystemData `json:"systemData,omitempty"`
	Properties Properties  `json:"properties"`
}

// SystemData tells who made and last changed a resource (ARM common types, systemData). Types are
// User, Application, ManagedIdentity and Key.
type SystemData struct {
	CreatedBy          string    `json:"createdBy,omitempty"`
	CreatedByType      string    `json:"createdByType,omitempty"`
	CreatedAt          time.Time `json:"createdAt,omitzero"`
	LastModifiedBy     string    `json:"lastModifiedBy,omitempty"`
	LastModifiedByType string    `json:"lastModifiedByType,omitempty"`
	LastModifiedAt     time.Time `json:"lastModifiedAt,omitzero"`
}

// Properties are what the caller wants (Desired) and what the provider says.
type Properties struct {
	Desired
	ProvisioningState string `json:"provisioningState,omitempty"`
	// ResourceUID is made with the resource and never changes.
	ResourceUID string `json:"resourceUid,omitempty"`
	// ConfigVersion is decimal; it is compared for inequality only.
	ConfigVersion string `json:"configVersion,omitempty"`
	// ConfigURL is in the answer to a PUT that asks for it, and nowhere else.
	ConfigURL        string     `json:"configUrl,omitempty"`
	ConfigURLExpires *time.Time `json:"configUrlExpires,omitempty"`
	// Config is the agent's configuration, without secrets.
	Config map[string]any `json:"config,omitempty"`
	Status *Status        `json:"status,omitempty"`
}

// The values of provisioningState.
const (
	Succeeded = "Succeeded"
	Creating  = "Creating"
	Updating  = "Updating"
	Deleting  = "Deleting"
	Failed    = "Failed"
	Canceled  = "Canceled"
)

// Desired is the part of the properties that the caller writes. A PUT replaces all of it.
type Desired struct {
	// ContinuousMonitoring has the node follow this resource after it has joined, whichever its
	// method of authentication; default true. With false it only joins.
	ContinuousMonitoring bool           `json:"continuousMonitoring"`
	AzureAuth            AzureAuth      `json:"azureAuth,omitzero"`
	KubernetesAuth       KubernetesAuth `json:"kubernetesAuth,omitzero"`
	Versions             Versions       `json:"versions,omitzero"`
	NodeConfig           NodeConfig     `json:"nodeConfig,omitzero"`
	// DriftPolicy is what happens when the machine is not as configured: report, repair or off.
	DriftPolicy string `json:"driftPolicy,omitempty"`
	// DriftPolicies are those of single kinds of things, by the kind (path, unit, sysctl, ...), where
	// they differ from DriftPolicy.
	DriftPolicies map[string]string `json:"driftPolicies,omitempty"`
	UpgradePolicy UpgradePolicy     `json:"upgradePolicy,omitzero"`
	Network       Network           `json:"network,omitzero"`
	Monitoring    Monitoring        `json:"monitoring,omitzero"`
}

// UpgradePolicy is how a change reaches the node. Durations are those of ISO 8601 (PT15M).
type UpgradePolicy struct {
	// Drain is minor (a change of the Kubernetes minor version moves the pods away), always or
	// never; Deadline bounds the move.
	Drain    string `json:"drain,omitempty"`
	Deadline string `json:"deadline,omitempty"`
	// DrainOptions are the pods that the move may delete.
	DrainOptions DrainOptions `json:"drainOptions,omitzero"`
	// ReadyTimeout bounds the wait for the node to be healthy; then it goes back.
	ReadyTimeout string `json:"readyTimeout,omitempty"`
	// MaintenanceWindow is when a change may begin; nil is always.
	MaintenanceWindow *MaintenanceWindow `json:"maintenanceWindow,omitempty"`
	// Paused admits the node to no change that restarts or drains. Agents are not told of it.
	Paused bool `json:"paused,omitempty"`
}

// DrainOptions are the pods that may be deleted when the pods move away; nil is the default.
type DrainOptions struct {
	Force          *bool `json:"force,omitempty"`          // pods without a controller; not by default
	DeleteEmptyDir *bool `json:"deleteEmptyDir,omitempty"` // pods with an emptyDir; by default
}

// MaintenanceWindow is a time that comes again each week.
type MaintenanceWindow struct {
	Days      []string `json:"days,omitempty"` // Monday, ...; none is every day
	Start     string   `json:"start"`          // HH:MM
	Duration  string   `json:"duration"`
	UTCOffset string   `json:"utcOffset,omitempty"` // +HH:MM or -HH:MM
}

// Network is about the machine's own network.
type Network struct {
	// Metadata is block or allow: whether pods are kept from the metadata services of clouds.
	Metadata string `json:"metadata,omitempty"`
}

// Monitoring is how an agent follows the resource.
type Monitoring struct {
	// Endpoint is the URL of the provider that is polled, with the machine's key; default the
	// provider's own. ResourceManager polls Azure Resource Manager with the node's identity in Azure.
	Endpoint string `json:"endpoint,omitempty"`
	Interval string `json:"interval,omitempty"`
}

// ResourceManager is the monitoring.endpoint of a node that polls Azure Resource Manager.
const ResourceManager = "resourceManager"

// The values of azureAuth.method.
const (
	BootstrapToken   = "bootstrapToken" // no identity in Azure
	ServicePrincipal = "servicePrincipal"
	ManagedIdentity  = "managedIdentity"
	Arc              = "arc"
)

// AzureAuth is who the node is to Azure.
type AzureAuth struct {
	Method           string                `json:"method,omitempty"`
	ServicePrincipal *ServicePrincipalAuth `json:"servicePrincipal,omitempty"`
	ManagedIdentity  *ManagedIdentityAuth  `json:"managedIdentity,omitempty"`
	Arc              *ArcAuth              `json:"arc,omitempty"`
}

// ServicePrincipalAuth is an Entra application.
type ServicePrincipalAuth struct {
	ClientID string `json:"clientId"`
	// ClientSecret is written only; a PUT without it keeps the one that is stored for the same
	// ClientID.
	ClientSecret string `json:"clientSecret,omitempty"`
	ClientTenant string `json:"clientTenant,omitempty"`
	// SecretExpires is the day on which ClientSecret ends, such as 2027-01-31.
	SecretExpires string `json:"secretExpires,omitempty"`
	// PrincipalID is the object id of the service principal, by which clusters know it.
	PrincipalID string `json:"principalId,omitempty"`
}

// ManagedIdentityAuth is the identity of an Azure VM; without a ClientID it is the system-assigned
// one.
type ManagedIdentityAuth struct {
	ClientID string `json:"clientId,omitempty"`
	// PrincipalID is the object id of a system-assigned identity, by which its node is known when
	// it polls.
	PrincipalID string `json:"principalId,omitempty"`
}

// ArcAuth is the identity of an Azure Arc machine.
type ArcAuth struct {
	// MachineResourceID is the id of the machine; default: the machine of the node's name in the
	// cluster's resource group.
	MachineResourceID string `json:"machineResourceId,omitempty"`
	// PrincipalID is the object id of the machine's identity, by which clusters know it.
	PrincipalID string `json:"principalId,omitempty"`
	// Onboarding enrols the machine where it is not connected yet: its secret is in what a machine
	// joins with, and is erased there once the machine is enrolled. It is no identity of the node.
	Onboarding *ServicePrincipalAuth `json:"onboarding,omitempty"`
	// AutoRoleAssignment has whoever enrols the machine give its identity the roles that a token in
	// kubelet's requests needs.
	AutoRoleAssignment bool `json:"autoRoleAssignment,omitempty"`
}

// KubernetesAuth is how kubelet joins: with the identity in Azure, else with a bootstrap token that
// the provider makes.
type KubernetesAuth struct {
	UseAzureAuth bool `json:"useAzureAuth,omitempty"`
	// KubeletCredential is what kubelet shows when it uses that identity: token, or certificate,
	// which it requests once with the token; that is the default.
	KubeletCredential string `json:"kubeletCredential,omitempty"`
}

// Versions are those that the node is to run; empty ones are the provider's choice.
type Versions struct {
	Kubernetes string `json:"kubernetes,omitempty"`
	Containerd string `json:"containerd,omitempty"`
	Runc       string `json:"runc,omitempty"`
	CNI        string `json:"cni,omitempty"`
	NPD        string `json:"npd,omitempty"`
	// AllowUnknown accepts versions whose digests the provider does not know.
	AllowUnknown bool `json:"allowUnknown,omitempty"`
	// AllowVulnerable accepts versions with which a container can break out.
	AllowVulnerable bool `json:"allowVulnerable,omitempty"`
}

// NodeConfig is what the Node and its kubelet are to be like.
type NodeConfig struct {
	MaxPods int               `json:"maxPods,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Taints  []string          `json:"taints,omitempty"` // key=value:Effect or key:Effect
	Kubelet Kubelet           `json:"kubelet,omitzero"`
}

// Kubelet are settings of kubelet.
type Kubelet struct {
	KubeReserved         map[string]string `json:"kubeReserved,omitempty"`
	EvictionHard         map[string]string `json:"evictionHard,omitempty"`
	ImageGCHighThreshold int               `json:"imageGCHighThreshold,omitempty"` // percent
	ImageGCLowThreshold  int               `json:"imageGCLowThreshold,omitempty"`  // percent
	Verbosity            int               `json:"verbosity,omitempty"`
	NodeIP               string            `json:"nodeIP,omitempty"`
}

// ConfigURL is the answer of regenerateToken and listConfigUrl.
type ConfigURL struct {
	ConfigVersion    string    `json:"configVersion"`
	ConfigURL        string    `json:"configUrl"`
	ConfigURLExpires time.Time `json:"configUrlExpires"`
}

// List is a page of a collection.
type List[T any] struct {
	Value    []T    `json:"value"`
	NextLink string `json:"nextLink,omitempty"`
}

// ManagedCluster is a target cluster as the provider knows it.
type ManagedCluster struct {
	ID         string            `json:"id,omitempty"`
	Name       string            `json:"name,omitempty"`
	Type       string            `json:"type,omitempty"`
	Location   string            `json:"location"`
	ETag       string            `json:"eTag,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	SystemData *SystemData       `json:"systemData,omitempty"`
	Properties ClusterProperties `json:"properties"`
}

// ClusterProperties say how the provider reaches a cluster, and what nodes are told of it.
type ClusterProperties struct {
	ProvisioningState string `json:"provisioningState,omitempty"`
	// Kubeconfig names one of the provider's kubeconfigs; empty: the provider asks Resource Manager
	// for one.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// ServerURL and DNSServiceIP are what nodes use; default: what the kubeconfig and the cluster
	// say.
	ServerURL    string `json:"serverUrl,omitempty"`
	DNSServiceIP string `json:"dnsServiceIP,omitempty"`
	// PodCIDR is the network out of which each node gets a subnet of NodeCIDRMask bits; empty:
	// nodes take the one of their Node object.
	PodCIDR      string `json:"podCidr,omitempty"`
	NodeCIDRMask int    `json:"nodeCidrMask,omitempty"`
	// RolloutPolicy bounds how changes reach the nodes; nil is the default of each setting.
	RolloutPolicy *RolloutPolicy `json:"rolloutPolicy,omitempty"`
	// KubernetesVersion is that of the API server, as it said itself.
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// Reachable reports whether the provider got an answer when it last tried.
	Reachable bool `json:"reachable,omitempty"`
	// Message tells people what is wrong with the registration or the cluster.
	Message string `json:"message,omitempty"`
}

// RolloutPolicy bounds how a change that restarts or drains reaches the nodes of a cluster. A change
// is the settings, with their values, in which what is desired differs from what is applied.
type RolloutPolicy struct {
	// MaxUnavailable is the number of nodes that may be under a change at once, or a percentage of
	// the cluster's nodes (rounded down, at least 1); default 10%.
	MaxUnavailable string `json:"maxUnavailable,omitempty"`
	// Canaries is the number of nodes that must be good with a change before others get it;
	// default 1.
	Canaries *int `json:"canaries,omitempty"`
	// Soak is the time that a node must stay Ready after a change to be good; default PT10M.
	Soak string `json:"soak,omitempty"`
	// MaxFailed is the number of nodes that may fail a change; with one more it is held; default 1.
	MaxFailed *int `json:"maxFailed,omitempty"`
	// MaxUnknown is the number of nodes that may be silent at the deadline of a change, written as
	// MaxUnavailable; with one more it is held; default 20%.
	MaxUnknown string `json:"maxUnknown,omitempty"`
	// Deadline is the time that a node may take until it has applied a change and is Ready; default
	// PT30M.
	Deadline string `json:"deadline,omitempty"`
	// Paused admits no change.
	Paused bool `json:"paused,omitempty"`
}

// Bundle is what a machine is handed out: its configuration, with secrets, and where it is from.
type Bundle struct {
	// SchemaVersion is the form of the bundle, major.minor.
	SchemaVersion string         `json:"schemaVersion"`
	Config        map[string]any `json:"config"`
	Resource      BundleResource `json:"resource"`
	// EnrolmentSecret registers the key of the machine as the node's, once (RegisterKey). It is only
	// in what a configuration URL gives.
	EnrolmentSecret string `json:"enrolmentSecret,omitempty"`
	// Signature covers Config without its secrets, and Resource without its id.
	Signature *agentapi.Signature `json:"signature,omitempty"`
	// Root is the certificate of the installation's root key, in DER. The machine trusts no other
	// from then on. It is only in what a configuration URL gives.
	Root []byte `json:"root,omitempty"`
}

// BundleResource is the flexNodeConfig that a configuration is from.
type BundleResource struct {
	ID            string `json:"id"`
	UID           string `json:"uid"`
	ConfigVersion string `json:"configVersion"`
	// Epoch counts how often the provider was restored from a backup: configVersion never goes
	// back within one.
	Epoch int64 `json:"epoch"`
}

// DeletionCounts is the answer to DELETE of a cluster with dryRun=true: what it would do.
type DeletionCounts struct {
	DryRun      bool `json:"dryRun"`      // always true
	Nodes       int  `json:"nodes"`       // flexNodeConfigs that would be deleted
	Joined      int  `json:"joinedNodes"` // of them, those that have reported or have a Node
	Credentials int  `json:"credentials"` // that would be revoked
	Wipe        bool `json:"wipe"`        // the machines would be given back
}
