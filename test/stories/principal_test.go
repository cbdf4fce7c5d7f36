package stories

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/health"
)

// A service principal proves itself with the certificate that is of its key, whatever others are in
// the file, such as that of an issuer which ends before.
func TestPrincipalCertificateBehindItsIssuer(t *testing.T) {
	p := healthy(t, false)
	p.principal(90 * 24 * time.Hour)
	file := p.config.Azure.ServicePrincipal.CertificateFile
	own, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	issuer, _ := p.ended(x509.Certificate{Subject: pkix.Name{CommonName: "issuer"}})
	if err := os.WriteFile(file, append(issuer, own...), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := p.principalCertificate(); c.Status != health.True {
		t.Errorf("it is %s %s: %s", c.Status, c.Reason, c.Message)
	}
}

// A pipe in the place of the certificate is told, and not waited for.
func TestPrincipalCertificateIsAPipe(t *testing.T) {
	p := healthy(t, false)
	p.principal(90 * 24 * time.Hour)
	file := p.config.Azure.ServicePrincipal.CertificateFile
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	told := make(chan health.Diagnosis, 1)
	go func() { told <- p.principalCertificate() }()
	select {
	case c := <-told:
		if c.Status != health.Unknown || c.Message == "" {
			t.Errorf("it is %s %s: %s", c.Status, c.Reason, c.Message)
		}
	case <-time.After(time.Minute):
		t.Fatal("a pipe is waited for")
	}
}

// principalCertificate is what doctor says of the service principal's certificate.
func (p *patient) principalCertificate() health.Diagnosis {
	list := p.doctor(p.t.(*testing.T))
	at := slices.IndexFunc(list, func(d health.Diagnosis) bool {
		return d.Type == health.PrincipalCertificate
	})
	return list[at]
}
