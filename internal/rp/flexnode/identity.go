package flexnode

import (
	"cmp"
	"slices"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// IdentityOf returns the identity with which a node polls: "app:<tenant>/<client id>",
// "oid:<tenant>/<object id>" or "mirid:<resource id>", in lower case; "" is none. tenant is the
// cluster's: an application can have service principals in many tenants.
func IdentityOf(id string, d Desired, tenant string) string {
	auth := d.AzureAuth
	in := func(kind, tenant, id string) string {
		if tenant == "" {
			return ""
		}
		return kind + ":" + arm.Fold(tenant+"/"+id)
	}
	switch sp, mi := auth.ServicePrincipal, auth.ManagedIdentity; {
	case sp != nil && sp.ClientTenant != "":
		return in("app", sp.ClientTenant, sp.ClientID)
	case sp != nil:
		return in("app", tenant, sp.ClientID)
	case mi != nil && mi.ClientID != "":
		return in("app", tenant, mi.ClientID)
	case mi != nil && mi.PrincipalID != "":
		return in("oid", tenant, mi.PrincipalID)
	case auth.Method == api.Arc:
		return "mirid:" + arm.Fold(MachineOf(id, d))
	}
	return ""
}

// MachineOf returns the id of a node's Arc machine: the named one, else the one of the node's name.
func MachineOf(id string, d Desired) string {
	if arc := d.AzureAuth.Arc; arc != nil && arc.MachineResourceID != "" {
		return arc.MachineResourceID
	}
	node, err := arm.Parse(id)
	if err != nil {
		return ""
	}
	return node.Scope() + "/providers/Microsoft.HybridCompute/machines/" + LastOf(id)
}

// Former holds the previous identities of a node, oldest first, separated by blanks: the shortest
// form, since it is in the rows and in every replica's memory.
type Former string

// maxFormer is the max number of previous identities of a node.
const maxFormer = 3

// All returns the identities.
func (f Former) All() []string { return strings.Fields(string(f)) }

// with adds an identity and removes now, the present one. Of too many it keeps the first, which was
// most likely seen last, and the newest, which the agent has most likely received.
func (f Former) with(identity, now string) Former {
	all := slices.DeleteFunc(append(f.All(), identity), func(s string) bool {
		return s == "" || s == now
	})
	if len(all) > maxFormer {
		all = slices.Delete(all, 1, len(all)-maxFormer+1)
	}
	return Former(strings.Join(all, " "))
}

// identify sets the identity of a node after a change; previous ones hold until it is seen.
func (n *Node) identify(tenant string) {
	now := IdentityOf(n.ID, n.Desired, tenant)
	if now == n.Identity {
		return
	}
	n.Former = n.Former.with(n.Identity, now)
	n.Identity, n.Principal = now, ""
}

// PrincipalID returns the object id of the Azure identity that a node joins with, by which its
// cluster knows it: the one that the owner names, else the one that was seen; "" if unknown.
func (n Node) PrincipalID() string {
	_, named := namedPrincipal(n.Desired.AzureAuth)
	return cmp.Or(named, n.Principal)
}

// namedPrincipal returns the section for a node's identity, and the object id in it.
func namedPrincipal(auth AzureAuth) (section, id string) {
	switch {
	case auth.ServicePrincipal != nil:
		return api.ServicePrincipal, auth.ServicePrincipal.PrincipalID
	case auth.ManagedIdentity != nil:
		return api.ManagedIdentity, auth.ManagedIdentity.PrincipalID
	case auth.Arc != nil:
		return api.Arc, auth.Arc.PrincipalID
	}
	return "", ""
}

// ShowsToken reports whether the node's kubelet sends an Azure token with each request, if the node
// has an operator's defaults.
func (n Node) ShowsToken(defaults *Layer) bool {
	auth, arc := n.Desired.KubernetesAuth, n.Desired.AzureAuth.Arc
	return auth.UseAzureAuth && config.CredentialToken == cmp.Or(auth.KubeletCredential,
		textIn(defaults.settings(), "azure", "kubeletCredential"),
		config.DefaultCredential(arc != nil && arc.AutoRoleAssignment))
}

// Assignee returns the principal for the roles of kubelet's tokens: an object or client id, or an
// Arc machine. Only settings name it: root on a machine must not choose whose roles are removed.
func (n Node) Assignee() string {
	_, named := namedPrincipal(n.Desired.AzureAuth)
	_, rest, _ := strings.Cut(n.Identity, ":")
	if !strings.HasPrefix(rest, "/") {
		rest = LastOf(rest)
	}
	return cmp.Or(named, rest)
}

// ClusterID returns the ARM id of the node's cluster, in the casing of the node's.
func (n Node) ClusterID() string {
	parts := strings.Split(n.ID, "/")
	return strings.Join(parts[:max(len(parts)-2, 0)], "/")
}

// Joins sets the object id of the Azure identity that a node joins with; it ignores other texts.
func (n Node) Joins(principal string) Node {
	if n.Desired.KubernetesAuth.UseAzureAuth && IsGUID(principal) {
		n.Principal = principal
	}
	return n
}

// complete brings equivalent settings into one form, and fills in defaults.
func complete(d Desired) Desired {
	auth := &d.AzureAuth
	auth.Method = cmp.Or(auth.Method, api.BootstrapToken)
	if auth.Method == api.ManagedIdentity && auth.ManagedIdentity == nil {
		auth.ManagedIdentity = &ManagedIdentityAuth{}
	}
	if auth.Method == api.Arc && auth.Arc == nil {
		auth.Arc = &ArcAuth{}
	}
	return d
}

// Validate checks the rules that the agent does not have: combinations of authentication methods,
// and durations. Decide checks everything else.
func Validate(d Desired) Problems {
	var problems Problems
	d = complete(d)
	auth := d.AzureAuth
	methods := []string{api.BootstrapToken, api.ServicePrincipal, api.ManagedIdentity, api.Arc}
	if !slices.Contains(methods, auth.Method) {
		problems.add("properties.azureAuth.method", "The method '%s' is not one of %s.",
			shorten(auth.Method), strings.Join(methods, ", "))
		return problems
	}
	problems.sections(auth)
	problems.principals(auth)
	const none = "needs an identity in Azure, which the method bootstrapToken is not: choose " +
		"servicePrincipal, managedIdentity or arc"
	// The provider's own listener knows a machine by its key.
	asIdentity := d.ContinuousMonitoring && d.Monitoring.Endpoint == api.ResourceManager
	problems.unless(!asIdentity || auth.Method != api.BootstrapToken,
		"properties.monitoring.endpoint", "Polling Resource Manager %s.", none)
	problems.unless(!d.KubernetesAuth.UseAzureAuth || auth.Method != api.BootstrapToken,
		"properties.kubernetesAuth.useAzureAuth", "Joining with an Azure identity %s.", none)
	problems.unless(len(auth.Registries) == 0 || auth.Method != api.BootstrapToken,
		"properties.azureAuth.registries", "Pulling images from registries %s.", none)
	problems.unless(len(auth.Registries) <= maxRegistries, "properties.azureAuth.registries",
		"There are %d registries; at most %d are allowed.", len(auth.Registries), maxRegistries)
	mi := auth.ManagedIdentity
	problems.unless(!asIdentity || mi == nil || mi.ClientID != "" || mi.PrincipalID != "",
		"properties.azureAuth.managedIdentity", "Polling Resource Manager needs the clientId of a "+
			"user-assigned identity or the principalId of the system-assigned one: by it the node is "+
			"known when it polls.")
	problems.durations(d)
	problems.nodeConfig(d.NodeConfig)
	if auth.Arc != nil {
		problems.arc(*auth.Arc, d.KubernetesAuth.UseAzureAuth)
	}
	return problems
}

// arc checks the settings of an Arc machine, which is enrolled only as kubelet's identity.
func (p *Problems) arc(arc ArcAuth, useAzure bool) {
	if arc.MachineResourceID != "" {
		p.machine(arc.MachineResourceID)
	}
	const why = "The agent enrols the machine only if kubelet uses its identity: set " +
		"kubernetesAuth.useAzureAuth to true, or omit this."
	p.unless(useAzure || arc.Onboarding == nil, "properties.azureAuth.arc.onboarding", why)
	p.unless(useAzure || !arc.AutoRoleAssignment, "properties.azureAuth.arc.autoRoleAssignment", why)
}

// sections rejects sections of other methods, and a service principal without one.
func (p *Problems) sections(auth AzureAuth) {
	for _, section := range []struct {
		method string
		given  bool
	}{
		{api.ServicePrincipal, auth.ServicePrincipal != nil},
		{api.ManagedIdentity, auth.ManagedIdentity != nil},
		{api.Arc, auth.Arc != nil},
	} {
		p.unless(!section.given || section.method == auth.Method, "properties.azureAuth."+section.method,
			"This section is for the method %s, and the method is %s.", section.method, auth.Method)
	}
	p.unless(auth.Method != api.ServicePrincipal || auth.ServicePrincipal != nil,
		"properties.azureAuth.servicePrincipal",
		"The method servicePrincipal needs this section, with clientId and clientSecret.")
}

// principals checks that principal ids are GUIDs, and that none is given for enrolment.
func (p *Problems) principals(auth AzureAuth) {
	section, id := namedPrincipal(auth)
	if section == api.Arc {
		p.unless(auth.Arc.Onboarding == nil || auth.Arc.Onboarding.PrincipalID == "",
			"properties.azureAuth.arc.onboarding.principalId", "The node does not join with the identity "+
				"that enrols its machine: omit its principal id.")
	}
	p.unless(id == "" || IsGUID(id), "properties.azureAuth."+section+".principalId",
		"The principal id '%s' is not a GUID.", shorten(id))
}

// machine checks the id of an Arc machine, which may be in any subscription.
func (p *Problems) machine(id string) {
	const at = "properties.azureAuth.arc.machineResourceId"
	parsed, err := arm.Parse(id)
	machine := err == nil && parsed.Name() != "" && parsed.ResourceGroup != "" &&
		len(parsed.Types) == 1 && parsed.Parent == "" &&
		arm.EqualFold(parsed.Type(), "Microsoft.HybridCompute/machines")
	p.unless(machine, at, "'%s' is not the id of a Microsoft.HybridCompute/machines resource.",
		shorten(id))
	p.unless(!machine || IsGUID(parsed.Subscription), at,
		"The subscription '%s' of the Arc machine is not a GUID.", shorten(parsed.Subscription))
}

// IsMachine reports whether an id that a machine has sent is the id of an Arc machine.
func IsMachine(id string) bool {
	var p Problems
	p.bound("", id, 1024)
	p.machine(id)
	return len(p) == 0
}

// principalOf returns the service principal whose client secret is stored for a node, nil for none,
// and its path in the resource: the node's own identity, or the one that enrols its Arc machine.
func principalOf(auth AzureAuth) (*ServicePrincipalAuth, string) {
	if auth.ServicePrincipal == nil && auth.Arc != nil {
		return auth.Arc.Onboarding, "properties.azureAuth.arc.onboarding"
	}
	return auth.ServicePrincipal, "properties.azureAuth.servicePrincipal"
}

// WithoutSecret returns the settings of an owner without the client secret, and that secret.
func WithoutSecret(d Desired) (Desired, string) {
	given, _ := principalOf(d.AzureAuth)
	if given == nil {
		return d, ""
	}
	own := *given
	secret := own.ClientSecret
	own.ClientSecret = ""
	if d.AzureAuth.ServicePrincipal != nil {
		d.AzureAuth.ServicePrincipal = &own
		return d, secret
	}
	d.AzureAuth.Arc = new(*d.AzureAuth.Arc)
	d.AzureAuth.Arc.Onboarding = &own
	return d, secret
}

// JoinsByArc reports whether a node with a revision joins as an Arc machine, without a secret.
func (r Revision) JoinsByArc() bool {
	return r.Desired.AzureAuth.Method == api.Arc && r.Desired.KubernetesAuth.UseAzureAuth
}

// Onboards reports whether the client secret of a revision only enrols an Arc machine.
func (r Revision) Onboards(nodeID string, is func(identity string) bool) bool {
	return r.Desired.AzureAuth.Method == api.Arc && is(IdentityOf(nodeID, *r.Desired, ""))
}
