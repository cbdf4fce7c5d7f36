package front

import (
	"cmp"
	"crypto/x509"
	"net/http"
	"slices"

	"github.com/Azure/AKSFlexNode/internal/arm"
)

// ManagerCertificate authenticates Azure Resource Manager by its client certificate, and takes who
// the caller is from its headers (RPC, client request headers). The listener has verified that the
// certificate is of the right CA; here its name counts.
type ManagerCertificate struct {
	// Names are those that the certificate may have, as DNS names or as the common name.
	Names []string
}

// Authenticate implements Authenticator.
func (m ManagerCertificate) Authenticate(r *http.Request) (Caller, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || !m.knows(r.TLS.VerifiedChains[0][0]) {
		return Caller{}, arm.Errorf(403, "ClientCertificateNotTrusted",
			"Only Resource Manager may ask here, by its client certificate.")
	}
	return managerCaller(r.Header), nil
}

// managerCaller returns the caller that Resource Manager names.
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
	known := func(name string) bool { return slices.Contains(m.Names, name) }
	return known(cert.Subject.CommonName) || slices.ContainsFunc(cert.DNSNames, known)
}
