package flexnode

import api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"

// principalOf is the service principal whose client secret is stored for a node, nil for none, and
// where the resource has it: the node's own identity, or the one that enrols its Arc machine.
func principalOf(auth api.AzureAuth) (*api.ServicePrincipalAuth, string) {
	if auth.ServicePrincipal == nil && auth.Arc != nil {
		return auth.Arc.Onboarding, "properties.azureAuth.arc.onboarding"
	}
	return auth.ServicePrincipal, "properties.azureAuth.servicePrincipal"
}

// WithoutSecret takes the client secret out of what an owner wants.
func WithoutSecret(d api.Desired) (api.Desired, string) {
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
	arc := *d.AzureAuth.Arc
	arc.Onboarding = &own
	d.AzureAuth.Arc = &arc
	return d, secret
}

// JoinsByArc reports whether a node with a revision joins as an Arc machine, by no secret.
func (r Revision) JoinsByArc() bool {
	return r.Desired.AzureAuth.Method == api.Arc && r.Desired.KubernetesAuth.UseAzureAuth
}

// Onboards reports whether the client secret of a revision enrols an Arc machine, which one that
// speaks as that machine has no use for.
func (r Revision) Onboards(nodeID string, is func(identity string) bool) bool {
	return r.Desired.AzureAuth.Method == api.Arc && is(IdentityOf(nodeID, *r.Desired, ""))
}
