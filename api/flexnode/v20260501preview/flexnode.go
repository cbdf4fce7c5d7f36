// Package v20260501preview defines the JSON of flexNodeConfig with api-version 2026-05-01-preview:
// what callers of the resource provider write and read, and what nodes receive. It uses only the
// standard library, so that every program can use it.
//
// The contract, with the meaning of each field, is api/typespec/main.tsp; docs/api has the OpenAPI
// document generated from it.
package v20260501preview

import (
	"encoding/json"
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

// SystemData records who created and last changed a resource (ARM common types, systemData). Types
// are User, Application, ManagedIdentity and Key.
type SystemData struct {
	CreatedBy          string    `json:"createdBy,omitempty"`
	CreatedByType      string    `json:"createdByType,omitempty"`
	CreatedAt          time.Time `json:"createdAt,omitzero"`
	LastModifiedBy     string    `json:"lastModifiedBy,omitempty"`
	LastModifiedByType string    `json:"lastModifiedByType,omitempty"`
	LastModifiedAt     time.Time `json:"lastModifiedAt,omitzero"`
}

// Properties holds the caller's settings (Desired) and the provider's.
type Properties struct {
	Desired
	ProvisioningState string          `json:"provisioningState,omitempty"`
	ResourceUID       string          `json:"resourceUid,omitempty"`
	ConfigVersion     string          `json:"configVersion,omitempty"`
	ConfigURL         string          `json:"configUrl,omitempty"`
	ConfigURLExpires  *time.Time      `json:"configUrlExpires,omitempty"`
	Config            json.RawMessage `json:"config,omitempty"`
	Status            *Status         `json:"status,omitempty"`
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

// Desired is the part of the properties that callers write. A PUT replaces all of it.
type Desired struct {
	ContinuousMonitoring bool              `json:"continuousMonitoring"`
	AzureAuth            AzureAuth         `json:"azureAuth,omitzero"`
	KubernetesAuth       KubernetesAuth    `json:"kubernetesAuth,omitzero"`
	Versions             Versions          `json:"versions,omitzero"`
	NodeConfig           NodeConfig        `json:"nodeConfig,omitzero"`
	DriftPolicy          string            `json:"driftPolicy,omitempty"`
	DriftPolicies        map[string]string `json:"driftPolicies,omitempty"`
	UpgradePolicy        UpgradePolicy     `json:"upgradePolicy,omitzero"`
	Network              Network           `json:"network,omitzero"`
	Monitoring           Monitoring        `json:"monitoring,omitzero"`
}

// UpgradePolicy controls how a change is made on the node. Durations are in ISO 8601 (PT15M).
type UpgradePolicy struct {
	Drain    string `json:"drain,omitempty"`
	Deadline string `json:"deadline,omitempty"`
	// DrainOptions select the pods that a drain may delete.
	DrainOptions      DrainOptions       `json:"drainOptions,omitzero"`
	ReadyTimeout      string             `json:"readyTimeout,omitempty"`
	MaintenanceWindow *MaintenanceWindow `json:"maintenanceWindow,omitempty"`
	Paused            bool               `json:"paused,omitempty"`
}

// DrainOptions select the pods that a drain may delete; nil is the default.
type DrainOptions struct {
	Force          *bool `json:"force,omitempty"`          // pods without a controller; not by default
	DeleteEmptyDir *bool `json:"deleteEmptyDir,omitempty"` // pods with an emptyDir; by default
}

// MaintenanceWindow is a weekly recurring time.
type MaintenanceWindow struct {
	Days      []string `json:"days,omitempty"` // Monday, ...; none is every day
	Start     string   `json:"start"`          // HH:MM
	Duration  string   `json:"duration"`
	UTCOffset string   `json:"utcOffset,omitempty"` // +HH:MM or -HH:MM
}

// Network holds the settings of the machine's own network.
type Network struct {
	Metadata string `json:"metadata,omitempty"`
}

// Monitoring describes how an agent follows the resource.
type Monitoring struct {
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

// AzureAuth describes the node's identity in Azure.
type AzureAuth struct {
	Method           string                `json:"method,omitempty"`
	ServicePrincipal *ServicePrincipalAuth `json:"servicePrincipal,omitempty"`
	ManagedIdentity  *ManagedIdentityAuth  `json:"managedIdentity,omitempty"`
	Arc              *ArcAuth              `json:"arc,omitempty"`
	// Registries are the registries for pulling images with that identity, as hosts or *.DOMAIN.
	Registries []string `json:"registries,omitempty"`
}

// ServicePrincipalAuth is an Entra application.
type ServicePrincipalAuth struct {
	ClientID      string `json:"clientId"`
	ClientSecret  string `json:"clientSecret,omitempty"`
	ClientTenant  string `json:"clientTenant,omitempty"`
	SecretExpires string `json:"secretExpires,omitempty"`
	PrincipalID   string `json:"principalId,omitempty"`
}

// ManagedIdentityAuth is the identity of an Azure VM; without a ClientID, the system-assigned one.
type ManagedIdentityAuth struct {
	ClientID    string `json:"clientId,omitempty"`
	PrincipalID string `json:"principalId,omitempty"`
}

// ArcAuth is the identity of an Azure Arc machine.
type ArcAuth struct {
	MachineResourceID  string                `json:"machineResourceId,omitempty"`
	PrincipalID        string                `json:"principalId,omitempty"`
	Onboarding         *ServicePrincipalAuth `json:"onboarding,omitempty"`
	AutoRoleAssignment bool                  `json:"autoRoleAssignment,omitempty"`
}

// KubernetesAuth selects how kubelet joins: with the Azure identity, or else a bootstrap token.
type KubernetesAuth struct {
	UseAzureAuth      bool   `json:"useAzureAuth,omitempty"`
	KubeletCredential string `json:"kubeletCredential,omitempty"`
}

// Versions are the wanted versions of the node; the provider chooses empty ones.
type Versions struct {
	Kubernetes      string `json:"kubernetes,omitempty"`
	Containerd      string `json:"containerd,omitempty"`
	Runc            string `json:"runc,omitempty"`
	CNI             string `json:"cni,omitempty"`
	NPD             string `json:"npd,omitempty"`
	AllowUnknown    bool   `json:"allowUnknown,omitempty"`
	AllowVulnerable bool   `json:"allowVulnerable,omitempty"`
}

// NodeConfig holds the settings of the Node and its kubelet.
type NodeConfig struct {
	MaxPods int               `json:"maxPods,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Taints  []string          `json:"taints,omitempty"` // key=value:Effect or key:Effect
	Kubelet Kubelet           `json:"kubelet,omitzero"`
}

// Kubelet holds settings of kubelet.
type Kubelet struct {
	KubeReserved         map[string]string `json:"kubeReserved,omitempty"`
	EvictionHard         map[string]string `json:"evictionHard,omitempty"`
	ImageGCHighThreshold *int              `json:"imageGCHighThreshold,omitempty"` // percent
	ImageGCLowThreshold  *int              `json:"imageGCLowThreshold,omitempty"`  // percent
	Verbosity            *int              `json:"verbosity,omitempty"`
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

// ManagedCluster is the provider's record of a target cluster.
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

// ClusterProperties configure the provider's access to a cluster, and the settings for its nodes.
type ClusterProperties struct {
	ProvisioningState string         `json:"provisioningState,omitempty"`
	Kubeconfig        string         `json:"kubeconfig,omitempty"`
	ServerURL         string         `json:"serverUrl,omitempty"`
	DNSServiceIP      string         `json:"dnsServiceIP,omitempty"`
	PodCIDR           string         `json:"podCidr,omitempty"`
	NodeCIDRMask      int            `json:"nodeCidrMask,omitempty"`
	RolloutPolicy     *RolloutPolicy `json:"rolloutPolicy,omitempty"`
	KubernetesVersion string         `json:"kubernetesVersion,omitempty"`
	Reachable         bool           `json:"reachable,omitempty"`
	Message           string         `json:"message,omitempty"`
}

// RolloutPolicy bounds how a change that restarts or drains is made on the nodes of a cluster. A
// change is the settings, with their values, that differ between the desired and the applied state.
type RolloutPolicy struct {
	MaxUnavailable string `json:"maxUnavailable,omitempty"`
	Canaries       *int   `json:"canaries,omitempty"`
	Soak           string `json:"soak,omitempty"`
	MaxFailed      *int   `json:"maxFailed,omitempty"`
	MaxUnknown     string `json:"maxUnknown,omitempty"`
	Deadline       string `json:"deadline,omitempty"`
	Paused         bool   `json:"paused,omitempty"` // admit no change
}

// Bundle holds the configuration of a machine, with secrets, and its resource.
type Bundle struct {
	SchemaVersion string         `json:"schemaVersion"` // the schema of the bundle, major.minor
	Config        map[string]any `json:"config"`
	Resource      BundleResource `json:"resource"`
	// EnrolmentSecret registers the key of the machine as the node's, once (RegisterKey). Only a
	// configuration URL delivers it.
	EnrolmentSecret string `json:"enrolmentSecret,omitempty"`
	// Signature covers Config without its secrets, and Resource without its id.
	Signature *agentapi.Signature `json:"signature,omitempty"`
	// Root is the certificate of the installation's root key, in DER. The machine trusts no other from
	// then on. Only a configuration URL delivers it.
	Root []byte `json:"root,omitempty"`
}

// BundleResource identifies the flexNodeConfig of a configuration.
type BundleResource struct {
	ID            string `json:"id"`
	UID           string `json:"uid"`
	ConfigVersion string `json:"configVersion"`
	// Epoch counts the provider's restores from backup: within one, configVersion never goes back.
	Epoch int64 `json:"epoch"`
}

// DeletionCounts is the answer to DELETE of a cluster with dryRun=true: its would-be effects.
type DeletionCounts struct {
	DryRun      bool `json:"dryRun"`      // always true
	Nodes       int  `json:"nodes"`       // flexNodeConfigs that would be deleted
	Joined      int  `json:"joinedNodes"` // of those, the ones that have reported or have a Node
	Credentials int  `json:"credentials"` // that would be revoked
	Wipe        bool `json:"wipe"`        // the machines would be given back
}
