package front

import (
	"cmp"
	"context"
	"crypto/x509"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/arm"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// Caller is an authenticated principal.
type Caller struct {
	TenantID, ObjectID, AppID string
	Name                      string // user principal name, else application id
	Type                      string // User, Application or ManagedIdentity
	MachineID                 string // resource id of a managed identity's resource
	// MachineKey is the thumbprint of the key with which a machine signed the request, UID the
	// flexNodeConfig that it claims to be. BodyDigest is the signed digest of the body; "" for none.
	MachineKey, UID, BodyDigest string
	// Boot is the boot of the machine, Signed the time of its signature by its own clock.
	Boot   flexnode.Boot
	Signed time.Time
	// Trusted reports that Resource Manager, which is in front, has authorized the caller.
	Trusted bool
}

// Authenticator authenticates a request; it returns an *arm.Error with status 401 or 403 otherwise.
type Authenticator interface {
	Authenticate(*http.Request) (Caller, error)
}

// Authorizer reports whether a caller may do an action at a scope.
type Authorizer interface {
	Allowed(ctx context.Context, c Caller, action, scope string) (bool, error)
}

// isNode reports whether the caller is a node with an identity, former ones and a machine key. Once
// a machine has registered its key, the node's Azure identity counts only behind Resource Manager:
// many machines may share it. It does not count after the machine was shut out.
func (c Caller) isNode(identity string, former flexnode.Former, machineKey string) bool {
	if c.isMachine() {
		return c.MachineKey == machineKey
	}
	counts := machineKey == "" || c.Trusted && machineKey != flexnode.ShutOut
	return counts && c.hasIdentity(identity, former)
}

// hasIdentity reports whether the caller has the present or a former identity of a node.
func (c Caller) hasIdentity(identity string, former flexnode.Former) bool {
	return c.is(identity) || slices.ContainsFunc(former.All(), c.is)
}

// is reports whether the caller has an identity of a node (flexnode.IdentityOf). A person who uses
// an application does not have its identity, nor does its namesake in another tenant.
func (c Caller) is(identity string) bool {
	kind, rest, _ := strings.Cut(identity, ":")
	if rest == "" || c.Type == "User" {
		return false
	}
	if kind == "mirid" {
		return arm.EqualFold(rest, c.MachineID)
	}
	tenant, id, _ := strings.Cut(rest, "/")
	return id != "" && arm.EqualFold(tenant, c.TenantID) &&
		(kind == "app" && arm.EqualFold(id, c.AppID) || kind == "oid" && arm.EqualFold(id, c.ObjectID))
}

// ManagerCertificate authenticates Azure Resource Manager by the name in its client certificate,
// and reads the caller from its headers (RPC, client request headers). The listener has verified
// that the right CA issued the certificate. The list has the accepted names: DNS names, or the
// common name.
type ManagerCertificate []string

// Authenticate implements Authenticator.
func (m ManagerCertificate) Authenticate(r *http.Request) (Caller, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || !m.knows(r.TLS.VerifiedChains[0][0]) {
		return Caller{}, arm.Errorf(403, "ClientCertificateNotTrusted",
			"Only Resource Manager, identified by its client certificate, may send requests here.")
	}
	return managerCaller(r.Header), nil
}

func managerCaller(h http.Header) Caller {
	c := Caller{
		Trusted: true, TenantID: h.Get("x-ms-client-tenant-id"),
		ObjectID: h.Get("x-ms-client-object-id"), AppID: h.Get("x-ms-client-app-id"),
		Name: h.Get("x-ms-client-principal-name"), Type: "User",
	}
	if c.Name == "" {
		c.Name, c.Type = cmp.Or(c.AppID, c.ObjectID), "Application"
	}
	return c
}

func (m ManagerCertificate) knows(cert *x509.Certificate) bool {
	known := func(name string) bool { return slices.Contains(m, name) }
	return known(cert.Subject.CommonName) || slices.ContainsFunc(cert.DNSNames, known)
}

// Assignment lets a principal do actions at a scope and below.
type Assignment struct {
	// PrincipalID is the object id of a user or service principal; groups are not expanded.
	PrincipalID string `json:"principalId"`
	// Scope is a resource id, or / for everything.
	Scope string `json:"scope"`
	// Actions lists the allowed actions; * stands for anything, as in
	// Microsoft.ContainerService/managedClusters/flexNodeConfig/*.
	Actions []string `json:"actions"`
}

// Assignments is an Authorizer with a fixed list.
type Assignments []Assignment

// Allowed implements Authorizer.
func (a Assignments) Allowed(_ context.Context, c Caller, action, scope string) (bool, error) {
	return c.ObjectID != "" && slices.ContainsFunc(a, func(one Assignment) bool {
		return strings.EqualFold(one.PrincipalID, c.ObjectID) && arm.Within(scope, one.Scope) &&
			arm.Allows(one.Actions, action)
	}), nil
}
