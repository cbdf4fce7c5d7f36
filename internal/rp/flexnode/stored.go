package flexnode

import api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"

// The settings of an owner as rows hold them, whatever version of the API they came in: a row is
// read for as long as its node exists. Each version of the API converts to and from these types
// (desiredOf, Desired.API). The meaning of each field is in api/typespec/main.tsp.
type (
	// Desired holds the settings of a node, without secrets.
	Desired struct {
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

	// AzureAuth is the node's identity in Azure.
	AzureAuth struct {
		Method           string                `json:"method,omitempty"`
		ServicePrincipal *ServicePrincipalAuth `json:"servicePrincipal,omitempty"`
		ManagedIdentity  *ManagedIdentityAuth  `json:"managedIdentity,omitempty"`
		Arc              *ArcAuth              `json:"arc,omitempty"`
		Registries       []string              `json:"registries,omitempty"`
	}

	// ServicePrincipalAuth is an Entra application.
	ServicePrincipalAuth struct {
		ClientID      string `json:"clientId"`
		ClientSecret  string `json:"clientSecret,omitempty"` // never stored
		ClientTenant  string `json:"clientTenant,omitempty"`
		SecretExpires string `json:"secretExpires,omitempty"`
		PrincipalID   string `json:"principalId,omitempty"`
	}

	// ManagedIdentityAuth is the identity of an Azure VM.
	ManagedIdentityAuth struct {
		ClientID    string `json:"clientId,omitempty"`
		PrincipalID string `json:"principalId,omitempty"`
	}

	// ArcAuth is the identity of an Azure Arc machine.
	ArcAuth struct {
		MachineResourceID  string                `json:"machineResourceId,omitempty"`
		PrincipalID        string                `json:"principalId,omitempty"`
		Onboarding         *ServicePrincipalAuth `json:"onboarding,omitempty"`
		AutoRoleAssignment bool                  `json:"autoRoleAssignment,omitempty"`
	}

	// KubernetesAuth selects how kubelet joins.
	KubernetesAuth struct {
		UseAzureAuth      bool   `json:"useAzureAuth,omitempty"`
		KubeletCredential string `json:"kubeletCredential,omitempty"`
	}

	// Versions are the versions of the node's components.
	Versions struct {
		Kubernetes      string `json:"kubernetes,omitempty"`
		Containerd      string `json:"containerd,omitempty"`
		Runc            string `json:"runc,omitempty"`
		CNI             string `json:"cni,omitempty"`
		NPD             string `json:"npd,omitempty"`
		AllowUnknown    bool   `json:"allowUnknown,omitempty"`
		AllowVulnerable bool   `json:"allowVulnerable,omitempty"`
	}

	// NodeConfig holds the settings of the Node.
	NodeConfig struct {
		MaxPods int               `json:"maxPods,omitempty"`
		Labels  map[string]string `json:"labels,omitempty"`
		Taints  []string          `json:"taints,omitempty"`
		Kubelet Kubelet           `json:"kubelet,omitzero"`
	}

	// Kubelet holds settings of kubelet.
	Kubelet struct {
		KubeReserved         map[string]string `json:"kubeReserved,omitempty"`
		EvictionHard         map[string]string `json:"evictionHard,omitempty"`
		ImageGCHighThreshold *int              `json:"imageGCHighThreshold,omitempty"`
		ImageGCLowThreshold  *int              `json:"imageGCLowThreshold,omitempty"`
		Verbosity            *int              `json:"verbosity,omitempty"`
		NodeIP               string            `json:"nodeIP,omitempty"`
	}

	// UpgradePolicy controls how a change is made on the node.
	UpgradePolicy struct {
		Drain             string             `json:"drain,omitempty"`
		Deadline          string             `json:"deadline,omitempty"`
		DrainOptions      DrainOptions       `json:"drainOptions,omitzero"`
		ReadyTimeout      string             `json:"readyTimeout,omitempty"`
		MaintenanceWindow *MaintenanceWindow `json:"maintenanceWindow,omitempty"`
		Paused            bool               `json:"paused,omitempty"`
	}

	// DrainOptions select the pods that a drain may delete.
	DrainOptions struct {
		Force          *bool `json:"force,omitempty"`
		DeleteEmptyDir *bool `json:"deleteEmptyDir,omitempty"`
	}

	// MaintenanceWindow is a weekly recurring time.
	MaintenanceWindow struct {
		Days      []string `json:"days,omitempty"`
		Start     string   `json:"start"`
		Duration  string   `json:"duration"`
		UTCOffset string   `json:"utcOffset,omitempty"`
	}

	// Network holds the settings of the machine's own network.
	Network struct {
		Metadata string `json:"metadata,omitempty"`
	}

	// Monitoring describes how an agent follows the resource.
	Monitoring struct {
		Endpoint string `json:"endpoint,omitempty"`
		Interval string `json:"interval,omitempty"`
	}

	// ClusterProperties are the settings and the state of a registration.
	ClusterProperties struct {
		ProvisioningState string         `json:"provisioningState,omitempty"`
		Kubeconfig        string         `json:"kubeconfig,omitempty"`
		ServerURL         string         `json:"serverUrl,omitempty"`
		DNSServiceIP      string         `json:"dnsServiceIP,omitempty"`
		PodCIDR           string         `json:"podCidr,omitempty"`
		NodeCIDRMask      int            `json:"nodeCidrMask,omitempty"`
		RolloutPolicy     *RolloutPolicy `json:"rolloutPolicy,omitempty"`
		KubernetesVersion string         `json:"kubernetesVersion,omitempty"`
		Reachable         bool           `json:"reachable,omitempty"`
	}

	// RolloutPolicy bounds how a change is made on the nodes of a cluster.
	RolloutPolicy struct {
		MaxUnavailable string `json:"maxUnavailable,omitempty"`
		Canaries       *int   `json:"canaries,omitempty"`
		Soak           string `json:"soak,omitempty"`
		MaxFailed      *int   `json:"maxFailed,omitempty"`
		MaxUnknown     string `json:"maxUnknown,omitempty"`
		Deadline       string `json:"deadline,omitempty"`
		Paused         bool   `json:"paused,omitempty"`
	}
)

// desiredOf returns the settings of a request.
func desiredOf(d api.Desired) Desired {
	auth, policy := d.AzureAuth, d.UpgradePolicy
	stored := Desired{
		ContinuousMonitoring: d.ContinuousMonitoring,
		AzureAuth: AzureAuth{
			Method:           auth.Method,
			ServicePrincipal: (*ServicePrincipalAuth)(auth.ServicePrincipal),
			ManagedIdentity:  (*ManagedIdentityAuth)(auth.ManagedIdentity),
			Registries:       auth.Registries,
		},
		KubernetesAuth: KubernetesAuth(d.KubernetesAuth),
		Versions:       Versions(d.Versions),
		NodeConfig: NodeConfig{
			MaxPods: d.NodeConfig.MaxPods, Labels: d.NodeConfig.Labels, Taints: d.NodeConfig.Taints,
			Kubelet: Kubelet(d.NodeConfig.Kubelet),
		},
		DriftPolicy: d.DriftPolicy, DriftPolicies: d.DriftPolicies,
		UpgradePolicy: UpgradePolicy{
			Drain: policy.Drain, Deadline: policy.Deadline,
			DrainOptions: DrainOptions(policy.DrainOptions), ReadyTimeout: policy.ReadyTimeout,
			MaintenanceWindow: (*MaintenanceWindow)(policy.MaintenanceWindow), Paused: policy.Paused,
		},
		Network: Network(d.Network), Monitoring: Monitoring(d.Monitoring),
	}
	if arc := auth.Arc; arc != nil {
		stored.AzureAuth.Arc = &ArcAuth{
			MachineResourceID: arc.MachineResourceID, PrincipalID: arc.PrincipalID,
			Onboarding:         (*ServicePrincipalAuth)(arc.Onboarding),
			AutoRoleAssignment: arc.AutoRoleAssignment,
		}
	}
	return stored
}

// API returns the settings as version 2026-05-01-preview of the API shows them.
func (d Desired) API() api.Desired {
	auth, policy := d.AzureAuth, d.UpgradePolicy
	shown := api.Desired{
		ContinuousMonitoring: d.ContinuousMonitoring,
		AzureAuth: api.AzureAuth{
			Method:           auth.Method,
			ServicePrincipal: (*api.ServicePrincipalAuth)(auth.ServicePrincipal),
			ManagedIdentity:  (*api.ManagedIdentityAuth)(auth.ManagedIdentity),
			Registries:       auth.Registries,
		},
		KubernetesAuth: api.KubernetesAuth(d.KubernetesAuth),
		Versions:       api.Versions(d.Versions),
		NodeConfig: api.NodeConfig{
			MaxPods: d.NodeConfig.MaxPods, Labels: d.NodeConfig.Labels, Taints: d.NodeConfig.Taints,
			Kubelet: api.Kubelet(d.NodeConfig.Kubelet),
		},
		DriftPolicy: d.DriftPolicy, DriftPolicies: d.DriftPolicies,
		UpgradePolicy: api.UpgradePolicy{
			Drain: policy.Drain, Deadline: policy.Deadline,
			DrainOptions: api.DrainOptions(policy.DrainOptions), ReadyTimeout: policy.ReadyTimeout,
			MaintenanceWindow: (*api.MaintenanceWindow)(policy.MaintenanceWindow), Paused: policy.Paused,
		},
		Network: api.Network(d.Network), Monitoring: api.Monitoring(d.Monitoring),
	}
	if arc := auth.Arc; arc != nil {
		shown.AzureAuth.Arc = &api.ArcAuth{
			MachineResourceID: arc.MachineResourceID, PrincipalID: arc.PrincipalID,
			Onboarding:         (*api.ServicePrincipalAuth)(arc.Onboarding),
			AutoRoleAssignment: arc.AutoRoleAssignment,
		}
	}
	return shown
}

// PropertiesOf returns the settings of a registration in a request.
func PropertiesOf(p api.ClusterProperties) ClusterProperties {
	return ClusterProperties{
		Kubeconfig: p.Kubeconfig, ServerURL: p.ServerURL, DNSServiceIP: p.DNSServiceIP,
		PodCIDR: p.PodCIDR, NodeCIDRMask: p.NodeCIDRMask,
		RolloutPolicy: (*RolloutPolicy)(p.RolloutPolicy),
	}
}

// API returns the properties as version 2026-05-01-preview of the API shows them.
func (p ClusterProperties) API() api.ClusterProperties {
	return api.ClusterProperties{
		ProvisioningState: p.ProvisioningState, Kubeconfig: p.Kubeconfig, ServerURL: p.ServerURL,
		DNSServiceIP: p.DNSServiceIP, PodCIDR: p.PodCIDR, NodeCIDRMask: p.NodeCIDRMask,
		RolloutPolicy:     (*api.RolloutPolicy)(p.RolloutPolicy),
		KubernetesVersion: p.KubernetesVersion, Reachable: p.Reachable,
	}
}
