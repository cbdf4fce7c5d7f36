package stories

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/health"
)

// A service principal uses the certificate of its key, whatever others are in the file, such as an
// issuer's that expires earlier.
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
	if c := p.principalCredential(); c.Status != health.True {
		t.Errorf("it is %s %s: %s", c.Status, c.Reason, c.Message)
	}
}

// A pipe in place of the certificate is reported, and not waited for.
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
	go func() { told <- p.principalCredential() }()
	select {
	case c := <-told:
		if c.Reason != "Unreadable" || !strings.Contains(c.Message, "not a regular file") {
			t.Errorf("it is %s %s: %s", c.Status, c.Reason, c.Message)
		}
	case <-time.After(time.Minute):
		t.Fatal("a pipe is waited for")
	}
}

// principalCredential returns doctor's diagnosis of the service principal's credential.
func (p *patient) principalCredential() health.Diagnosis {
	list := p.doctor(p.t.(*testing.T))
	at := slices.IndexFunc(list, func(d health.Diagnosis) bool {
		return d.Type == health.PrincipalCredential
	})
	return list[at]
}

// A secret expires on the day that its owner has set.
func TestPrincipalSecretEndsSoon(t *testing.T) {
	p := healthy(t, false)
	p.principal(90 * 24 * time.Hour)
	for days, reason := range map[int]string{-1: "Expired", 5: "ExpiringSoon", 90: "AsExpected"} {
		ends := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, days)
		p.config = p.configuration(p.azure(func(azure map[string]any) {
			azure["servicePrincipal"] = map[string]any{"clientId": clientID, "clientSecret": "s",
				"secretExpires": ends.Format(time.DateOnly)}
		}))
		if c := p.principalCredential(); c.Reason != reason {
			t.Errorf("%d days before its end: %s: %s", days, c.Reason, c.Message)
		} else if days == 5 && !strings.Contains(c.Message, "in 4 days") {
			t.Errorf("the days left are not in %s", c.Message)
		}
	}
}

// The status of a node, from which its metrics are made, has the expiry of its secret.
func TestStatusHasTheEndOfASecret(t *testing.T) {
	w, _ := azureWorld(t)
	ends := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 5)
	w.config = w.configuration(w.azure(func(azure map[string]any) {
		azure["servicePrincipal"].(map[string]any)["secretExpires"] = ends.Format(time.DateOnly)
	}))
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if is := w.status().Certificates["principal"]; !is.Equal(ends) {
		t.Errorf("it ends at %s, want %s", is, ends)
	}
	if c := w.condition(health.PrincipalCredential); c.Reason != "ExpiringSoon" {
		t.Errorf("%+v", c)
	}
}
