package flexnode

import (
	"slices"
	"strings"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/arm"
)

// complete writes what can be written in two ways in one, and fills in defaults.
func complete(d api.Desired) api.Desired {
	auth := &d.AzureAuth
	if auth.Method == "" {
		auth.Method = api.BootstrapToken
	}
	if auth.Method == api.ManagedIdentity && auth.ManagedIdentity == nil {
		auth.ManagedIdentity = &api.ManagedIdentityAuth{}
	}
	if auth.Method == api.Arc && auth.Arc == nil {
		auth.Arc = &api.ArcAuth{}
	}
	return d
}

// Validate checks what the agent's own rules cannot see: how the methods of authentication go
// together, and durations, which it writes differently. All else is checked by Decide, which knows
// the cluster.
func Validate(d api.Desired) Problems {
	var problems Problems
	d = complete(d)
	auth := d.AzureAuth
	methods := []string{api.BootstrapToken, api.ServicePrincipal, api.ManagedIdentity, api.Arc}
	if !slices.Contains(methods, auth.Method) {
		problems.add("properties.azureAuth.method", "The method '%s' is not one of %s.",
			shorten(auth.Method), strings.Join(methods, ", "))
		return problems
	}
	problems = append(problems, checkSections(auth)...)
	const none = "needs an identity in Azure, which the method bootstrapToken is not: choose " +
		"servicePrincipal, managedIdentity or arc"
	if d.ContinuousMonitoring && auth.Method == api.BootstrapToken {
		problems.add("properties.continuousMonitoring", "Continuous monitoring %s.", none)
	}
	if d.KubernetesAuth.UseAzureAuth && auth.Method == api.BootstrapToken {
		problems.add("properties.kubernetesAuth.useAzureAuth",
			"Joining with an Azure identity %s.", none)
	}
	problems = append(problems, checkIdentity(d)...)
	problems = append(problems, checkDurations(d)...)
	problems = append(problems, checkNodeConfig(d.NodeConfig)...)
	if auth.Arc != nil {
		problems = append(problems, checkArc(d)...)
	}
	return problems
}

// checkArc checks what the agent's own rules do not know of an Arc machine. It is enrolled only
// where it is kubelet's identity.
func checkArc(d api.Desired) Problems {
	var problems Problems
	arc := d.AzureAuth.Arc
	if arc.MachineResourceID != "" {
		problems = checkMachine(arc.MachineResourceID)
	}
	if d.KubernetesAuth.UseAzureAuth {
		return problems
	}
	const why = "The agent enrols the machine where kubelet uses its identity: set " +
		"kubernetesAuth.useAzureAuth to true, or leave this out."
	if arc.Onboarding != nil {
		problems.add("properties.azureAuth.arc.onboarding", why)
	}
	if arc.AutoRoleAssignment {
		problems.add("properties.azureAuth.arc.autoRoleAssignment", why)
	}
	return problems
}

// checkSections wants the section of the method, and no other.
func checkSections(auth api.AzureAuth) Problems {
	var problems Problems
	for _, section := range []struct {
		method string
		given  bool
	}{
		{api.ServicePrincipal, auth.ServicePrincipal != nil},
		{api.ManagedIdentity, auth.ManagedIdentity != nil},
		{api.Arc, auth.Arc != nil},
	} {
		if section.given && section.method != auth.Method {
			problems.add("properties.azureAuth."+section.method,
				"This section is for the method %s, and the method is %s.",
				section.method, auth.Method)
		}
	}
	if auth.Method == api.ServicePrincipal && auth.ServicePrincipal == nil {
		problems.add("properties.azureAuth.servicePrincipal", "The method servicePrincipal needs "+
			"this section, with clientId and clientSecret.")
	}
	return problems
}

// checkIdentity wants a managed identity that a node can be known by when it polls.
func checkIdentity(d api.Desired) Problems {
	var problems Problems
	mi := d.AzureAuth.ManagedIdentity
	if mi == nil {
		return nil
	}
	const at = "properties.azureAuth.managedIdentity"
	if mi.PrincipalID != "" && !isGUID(mi.PrincipalID) {
		problems.add(at+".principalId", "The principal id '%s' is not a GUID.",
			shorten(mi.PrincipalID))
	}
	if d.ContinuousMonitoring && mi.ClientID == "" && mi.PrincipalID == "" {
		problems.add(at, "Continuous monitoring needs the clientId of a user-assigned identity or "+
			"the principalId of the system-assigned one: by it the node is known when it polls.")
	}
	return problems
}

// checkMachine wants the id of an Arc machine. Its subscription may be another than the cluster's:
// the agent registers the machine there.
func checkMachine(id string) Problems {
	var problems Problems
	const at = "properties.azureAuth.arc.machineResourceId"
	parsed, err := arm.Parse(id)
	machine := err == nil && parsed.Name() != "" && parsed.ResourceGroup != "" &&
		len(parsed.Types) == 1 && parsed.Parent == "" &&
		arm.EqualFold(parsed.Type(), "Microsoft.HybridCompute/machines")
	switch {
	case !machine:
		problems.add(at, "'%s' is not the id of a Microsoft.HybridCompute/machines resource.",
			shorten(id))
	case !isGUID(parsed.Subscription):
		problems.add(at, "The subscription '%s' of the Arc machine is not a GUID.",
			shorten(parsed.Subscription))
	}
	return problems
}
