package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	label = `[a-z0-9](?:[a-z0-9-]*[a-z0-9])?`
	guid  = `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`
)

// The Azure clouds.
const (
	PublicCloud       = "AzurePublicCloud"
	USGovernmentCloud = "AzureUSGovernmentCloud"
	ChinaCloud        = "AzureChinaCloud"
)

var (
	clusterID = regexp.MustCompile(`(?i)\A/subscriptions/(` + guid + `)/resourceGroups/([^/]+)` +
		`/providers/Microsoft\.ContainerService/managedClusters/` +
		`([a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?)\z`)
	isGUID          = matches(guid)
	isCredential    = matches(`[A-Za-z0-9._-]+`)
	isResourceGroup = upTo(90, matches(`[\p{L}\p{N}_.()-]*[\p{L}\p{N}_()-]`)) // ARM's rule
)

func isSecretFile(s string) bool { return isAbs(s) || isCredential(s) }

func isRole(s string) bool {
	_, known := Roles()[s]
	return known || isGUID(s)
}

func isClusterID(s string) bool {
	_, _, name := TargetCluster{ResourceID: s}.ID()
	return name != ""
}

// ID returns the parts of the cluster's resource id; all are empty if it is invalid.
func (t TargetCluster) ID() (subscription, resourceGroup, name string) {
	m := clusterID.FindStringSubmatch(t.ResourceID)
	if m == nil || !isResourceGroup(m[2]) {
		return "", "", ""
	}
	return m[1], m[2], m[3]
}

// The values of azure.kubeletCredential, kubelet's credential for the API server.
const (
	// CredentialToken is the identity's token in each request; Azure's roles authorize kubelet.
	CredentialToken = "token"
	// CredentialCertificate is a client certificate of the node, from TLS bootstrap with the
	// identity's token: the Node authorizer authorizes kubelet.
	CredentialCertificate = "certificate"
)

// Azure's built-in roles for clusters.
const (
	RoleReader           = "Reader"
	RoleRBACClusterAdmin = "Azure Kubernetes Service RBAC Cluster Admin"
	RoleClusterAdmin     = "Azure Kubernetes Service Cluster Admin Role"
	RoleClusterUser      = "Azure Kubernetes Service Cluster User Role"
)

// Roles returns the GUIDs of built-in roles, by name (Azure built-in roles).
func Roles() map[string]string {
	return map[string]string{
		RoleReader:           "acdd72a7-3385-48ef-bd42-f606fba81ae7",
		RoleRBACClusterAdmin: "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b",
		RoleClusterAdmin:     "0ab0b1a8-8aac-4efd-b8c2-3ee1fb270be8",
		RoleClusterUser:      "4abbcc35-e782-43d8-92c5-2d3f1bd2253f",
	}
}

// ShowsToken reports whether kubelet authenticates each request with a token of an Azure identity.
func (a Azure) ShowsToken() bool {
	return a.AuthMode() != AuthBootstrapToken && a.KubeletCredential == CredentialToken
}

// AuthMode is a method by which a node authenticates to the cluster.
type AuthMode string

// The methods.
const (
	AuthServicePrincipal AuthMode = "servicePrincipal"
	AuthManagedIdentity  AuthMode = "managedIdentity"
	AuthArc              AuthMode = "arc"
	AuthBootstrapToken   AuthMode = "bootstrapToken"
)

// ArcEnabled reports whether azure.arc is set and not disabled: the machine is enrolled with Arc.
func (a Azure) ArcEnabled() bool { return a.Arc != nil && (a.Arc.Enabled == nil || *a.Arc.Enabled) }

// AuthMode returns the method by which the node authenticates to the cluster; "" if there is not
// exactly one. An identity beside a bootstrap token is for continuous monitoring.
func (a Azure) AuthMode() AuthMode {
	if modes := a.authModes(); len(modes) == 1 || len(modes) == 2 && modes[0] == AuthBootstrapToken {
		return modes[0]
	}
	return ""
}

// Identity returns the method by which the machine authenticates to Azure; "" if it has none.
func (a Azure) Identity() AuthMode {
	modes := a.authModes()
	if len(modes) == 0 || modes[len(modes)-1] == AuthBootstrapToken {
		return ""
	}
	return modes[len(modes)-1]
}

// authModes lists the configured methods. A service principal beside Arc only onboards Arc.
func (a Azure) authModes() []AuthMode {
	var modes []AuthMode
	if a.BootstrapToken != nil {
		modes = append(modes, AuthBootstrapToken)
	}
	if a.ManagedIdentity != nil {
		modes = append(modes, AuthManagedIdentity)
	}
	if a.ArcEnabled() {
		return append(modes, AuthArc)
	}
	if a.ServicePrincipal != nil {
		modes = append(modes, AuthServicePrincipal)
	}
	return modes
}

func checkAuth(c Config, r *report) {
	const one = "must hold exactly one of bootstrapToken, servicePrincipal, managedIdentity and arc"
	modes := c.Azure.authModes()
	spoiled := r.spoiled("azure.bootstrapToken", "azure.servicePrincipal",
		"azure.managedIdentity", "azure.arc")
	switch {
	case len(modes) == 0 && !spoiled:
		r.add("azure", "", one+"; it holds none")
	case len(modes) == 2 && modes[0] == AuthBootstrapToken && c.ContinuousMonitoring:
	case len(modes) > 1:
		found := make([]string, len(modes))
		for i, m := range modes {
			found[i] = string(m)
		}
		r.add("azure", "", one+"; it holds "+strings.Join(found, " and ")+": keep one")
	}
	if len(c.Azure.Registries) > 0 && c.Azure.Identity() == "" && !spoiled {
		r.add("azure.registries", "", "must not be set: a registry does not accept a bootstrap token; "+
			"use servicePrincipal, managedIdentity or arc")
	}
	checkToken(c, r)
	checkPrincipal(c, r)
	checkArc(c, r)
}

func checkToken(c Config, r *report) {
	token := c.Azure.BootstrapToken
	if token == nil {
		return
	}
	r.need("azure.bootstrapToken.token", token.Token != "", "must be set in this section")
	if c.Azure.KubeletCredential == CredentialToken {
		r.add("azure.kubeletCredential", show(CredentialToken),
			"must not be token with a bootstrap token, which can only request a certificate")
	}
	if c.Node.AdminKubeconfig {
		r.add("node.adminKubeconfig", show("true"),
			"must not be true: Azure cannot be queried with a bootstrap token")
	}
	const why = "must be set: Azure cannot be queried with a bootstrap token for it"
	r.need("node.kubelet.serverURL", c.Node.Kubelet.ServerURL != "", why)
	r.need("node.kubelet.caCertData", c.Node.Kubelet.CACertData != "", why)
}

func checkPrincipal(c Config, r *report) {
	sp := c.Azure.ServicePrincipal
	if sp == nil {
		return
	}
	const at = "azure.servicePrincipal"
	r.need(at+".clientId", sp.ClientID != "", "must be set in this section")
	r.need("azure.tenantId", c.Azure.TenantID != "" || sp.TenantID != "",
		"must be set for a service principal (or "+at+".tenantId)")
	secrets := []string{sp.ClientSecret.Reveal(), sp.ClientSecretFile, sp.CertificateFile}
	given := len(slices.DeleteFunc(secrets, func(s string) bool { return s == "" }))
	spoiled := r.spoiled(at+".clientSecret", at+".clientSecretFile", at+".certificateFile")
	if given == 0 && c.Azure.ArcEnabled() {
		return // the machine is enrolled
	}
	if given != 1 && !spoiled {
		r.add(at, "", fmt.Sprintf("must hold exactly one of clientSecret, clientSecretFile and "+
			"certificateFile; it holds %d", given))
	}
}

func checkArc(c Config, r *report) {
	if !c.Azure.ArcEnabled() {
		return
	}
	arc := c.Azure.Arc
	r.need("azure.tenantId", c.Azure.TenantID != "", "must be set for Arc")
	r.need("azure.arc.machineName", arc.MachineName != "",
		"must be set: this machine has no host name")
	r.need("azure.arc.location", arc.Location != "",
		"must be set for Arc (or azure.targetCluster.location)")
	if *arc.AutoRoleAssignment && len(arc.Roles) == 0 {
		r.warn("azure.arc.autoRoleAssignment", "assigns nothing, since azure.arc.roles is empty: with "+
			"kubeletCredential certificate the identity needs no role")
	}
}

// Located reports whether the configuration locates the API server, so that Azure is not asked.
func (c Config) Located() bool {
	return c.Node.Kubelet.ServerURL != "" && c.Node.Kubelet.CACertData != ""
}

// Onboards reports whether a service principal with a credential can enrol the machine with Arc.
func (a Azure) Onboards() bool {
	sp := a.ServicePrincipal
	return sp != nil &&
		(sp.ClientSecret != "" || sp.ClientSecretFile != "" || sp.CertificateFile != "")
}
