package rp

import (
	"crypto/x509"
	"net/http"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// FrontDoor authenticates Azure Resource Manager by its client certificate, and takes who the caller is from its headers (RPC, client
// request headers). The listener has verified that the certificate is of the right CA; here its name counts.
type FrontDoor struct {
	// Names are those that the certificate may have, as DNS names or as the common name.
	Names []string
}

// Authenticate implements Authenticator.
func (d FrontDoor) Authenticate(r *http.Request) (Caller, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || !d.knows(r.TLS.VerifiedChains[0][0]) {
		return Caller{}, arm.Errorf(403, "ClientCertificateNotTrusted", "Only Resource Manager may ask here, by its client certificate.")
	}
	h := r.Header
	c := Caller{
		Trusted:  true,
		TenantID: h.Get("x-ms-client-tenant-id"), ObjectID: h.Get("x-ms-client-object-id"), AppID: h.Get("x-ms-client-app-id"),
		Name: h.Get("x-ms-client-principal-name"), Type: "User",
	}
	if c.Name == "" {
		c.Name, c.Type = c.AppID, "Application"
	}
	if c.Name == "" {
		c.Name = c.ObjectID
	}
	return c, nil
}

func (d FrontDoor) knows(cert *x509.Certificate) bool {
	if slices.Contains(d.Names, cert.Subject.CommonName) {
		return true
	}
	return slices.ContainsFunc(cert.DNSNames, func(name string) bool { return slices.Contains(d.Names, name) })
}
