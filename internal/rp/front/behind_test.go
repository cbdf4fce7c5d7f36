package front

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Resource Manager has one of its names in the certificate that the listener has verified; another
// client of the same CA is refused.
func TestManagerCertificate(t *testing.T) {
	named := func(common string, dns ...string) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: common}, DNSNames: dns}
	}
	manager, other := named("arm.example"), named("other.example", "other.arm.example")
	for name, tt := range map[string]struct {
		chain              []*x509.Certificate
		unverified, refuse bool
	}{
		"its common name":   {chain: []*x509.Certificate{manager}},
		"one of its names":  {chain: []*x509.Certificate{named("x", "x.example", "arm.example")}},
		"another client":    {chain: []*x509.Certificate{other}, refuse: true},
		"its name above it": {chain: []*x509.Certificate{other, manager}, refuse: true},
		"not verified":      {chain: []*x509.Certificate{manager}, unverified: true, refuse: true},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: tt.chain}
		if !tt.unverified {
			r.TLS.VerifiedChains = [][]*x509.Certificate{tt.chain}
		}
		_, err := ManagerCertificate{"management.example", "arm.example"}.Authenticate(r)
		equal(t, name+" is refused", err != nil, tt.refuse)
	}
}

// Resource Manager lets each reader read results: only the caller of an operation gets its URL.
func TestResultBehindManager(t *testing.T) {
	w := beside(t)
	w.register("")
	w.must(201, "PUT", nodeURL("n"), withToken)
	w.fails()
	w.front = w.manager
	const own, other = "x-ms-client-object-id: own", "x-ms-client-object-id: other"
	r, _ := w.must(202, "POST", nodeURL("n", "/regenerateToken"), "{}", own)
	result := path(r.Header.Get("Location"))
	w.cluster.isDown.Store(false)
	w.until("the URL is live", func() bool {
		return w.do("GET", result, "", own).StatusCode == 200
	})
	_, text := w.must(403, "GET", result, "", other)
	lacks(t, "the refusal", text, "sig=")
}

// A machine that is replaced while it joins gets no certificate: its token is revoked.
func TestReplacedWhileItJoins(t *testing.T) {
	w, m := newMachine(t)
	m.registers(t, 204, w.enrolment(t, "n"))
	key := w.storedNode("n").Credential
	edit(w, w.api.Store.Credentials, key, func(c *store.Credential) { c.State = store.Consumed })
	secret := w.enrolment(t, "n")
	equal(t, "those that join before", len(w.storedNode("n").Joining), 1)
	w.machineOf("n").registers(t, 204, secret)
	got := must(w.api.Store.Credentials.Get(t.Context(), key)).Value.State
	if got == store.Consumed || len(w.storedNode("n").Joining) > 0 {
		t.Errorf("its credential is %s, and joins: %v", got, w.storedNode("n").Joining)
	}
}
