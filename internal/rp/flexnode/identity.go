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
func IdentityOf(id string, d api.Desired, tenant string) string {
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
func MachineOf(id string, d api.Desired) string {
	if arc := d.AzureAuth.Arc; arc != nil && arc.MachineResourceID != "" {
		return arc.MachineResourceID
	}
	node, err := arm.Parse(id)
	if err != nil {
		return ""
	}
	return node.Scope() + "/providers/Microsoft.HybridCompute/machines/" + baseName(id)
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
func namedPrincipal(auth api.AzureAuth) (section, id string) {
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

// ShowsToken reports whether the node's kubelet sends an Azure token with each request.
func (n Node) ShowsToken() bool {
	auth := n.Desired.KubernetesAuth
	return auth.UseAzureAuth && auth.KubeletCredential == config.CredentialToken
}

// Assignee returns the principal for the roles of kubelet's tokens: an object or client id, or an
// Arc machine.
func (n Node) Assignee() string {
	_, rest, _ := strings.Cut(n.Identity, ":")
	if !strings.HasPrefix(rest, "/") {
		rest = rest[strings.LastIndex(rest, "/")+1:]
	}
	return cmp.Or(n.PrincipalID(), rest)
}

// ClusterID returns the ARM id of the node's cluster.
func (n Node) ClusterID() string { return clusterID(n.ID) }

// Joins sets the object id of the Azure identity that a node joins with; it ignores other texts.
func (n Node) Joins(principal string) Node {
	if n.Desired.KubernetesAuth.UseAzureAuth && IsGUID(principal) {
		n.Principal = principal
	}
	return n
}
