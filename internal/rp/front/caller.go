package front

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// Caller is an authenticated principal.
type Caller struct {
	TenantID, ObjectID, AppID string
	Name                      string // user principal name, else application id
	Type                      string // User, Application or ManagedIdentity
	MachineID                 string // resource id of a managed identity's resource
	// Trusted callers were authorized by Resource Manager, which is in front.
	Trusted bool
}

// Authenticator tells who a request comes from; an *arm.Error with status 401 or 403 otherwise.
type Authenticator interface {
	Authenticate(*http.Request) (Caller, error)
}

// Authorizer reports whether a caller may do an action at a scope.
type Authorizer interface {
	Allowed(ctx context.Context, c Caller, action, scope string) (bool, error)
}

// isNode reports whether the caller is a node that has an identity, and had others before.
func (c Caller) isNode(identity string, former flexnode.Former) bool {
	return c.is(identity) || slices.ContainsFunc(former.All(), c.is)
}

// is reports whether the caller is an identity of a node (flexnode.IdentityOf). A person who uses
// an application is not the application, and neither is its namesake in another tenant.
func (c Caller) is(identity string) bool {
	kind, rest, _ := strings.Cut(identity, ":")
	if rest == "" || c.Type == "User" {
		return false
	}
	if kind == "mirid" {
		return arm.EqualFold(rest, c.MachineID)
	}
	tenant, id, _ := strings.Cut(rest, "/")
	if id == "" || !arm.EqualFold(tenant, c.TenantID) {
		return false
	}
	return kind == "app" && arm.EqualFold(id, c.AppID) ||
		kind == "oid" && arm.EqualFold(id, c.ObjectID)
}
