package follow

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// issued is a certificate of a test, with its key.
type issued struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
}

// issue issues a certificate; by a nil one it signs itself.
func issue(t *testing.T, by *issued, name string, ca bool) *issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	is := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: ca, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if ca {
		is.KeyUsage |= x509.KeyUsageCertSign
	} else {
		is.DNSNames, is.IPAddresses = []string{name}, []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	from, with := is, key
	if by != nil {
		from, with = by.Certificate, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, is, from, &key.PublicKey, with)
	if err == nil {
		is, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &issued{is, key}
}

func (c *issued) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// pin is the one that `openssl pkey -pubin -outform der | openssl dgst -sha256` prints.
func (c *issued) pin() string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// serving is a provider that presents a chain, and how many requests have reached it.
func serving(t *testing.T, chain ...*issued) (url string, asked *atomic.Int32) {
	asked = &atomic.Int32{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		answer(200, "application/json", `{}`)(w, r)
	}))
	pair := tls.Certificate{PrivateKey: chain[0].key}
	for _, c := range chain {
		pair.Certificate = append(pair.Certificate, c.Raw)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL + "/b?" + secretPart, asked
}

// The first contact trusts the system's CAs, those of a file, and one that is pinned; with a pin, a
// chain without the pinned certificate is refused before the URL is sent.
func TestFirstContactTrust(t *testing.T) {
	root := issue(t, nil, "root", true)
	middle := issue(t, root, "middle", true)
	leaf := issue(t, middle, "provider.example", false)
	other := issue(t, nil, "root", true)
	alone := issue(t, nil, "provider.example", false)
	elsewhere := issue(t, nil, "elsewhere", true)
	stranger := issue(t, elsewhere, "stranger.example", false)
	stranger.IPAddresses = nil
	named := issueFor(t, root, "stranger.example")
	short, whole := []*issued{leaf, middle}, []*issued{leaf, middle, root}
	for name, c := range map[string]struct {
		chain    []*issued
		ca       []byte
		pin      string
		asked    bool
		adds     *issued // the pinned CA that is kept
		pinWrong bool
	}{
		"nothing given":       {chain: short},
		"a file":              {chain: short, ca: root.pem(), asked: true},
		"another file":        {chain: short, ca: other.pem()},
		"the root, presented": {chain: whole, pin: root.pin(), asked: true, adds: root},
		"the root, in a file": {chain: short, ca: root.pem(), pin: root.pin(), asked: true},
		"the root, not there": {chain: short, pin: root.pin(), pinWrong: true},
		"an intermediate":     {chain: short, pin: middle.pin(), asked: true, adds: middle},
		"the server itself": {chain: []*issued{alone}, pin: alone.pin(), asked: true,
			adds: alone},
		"another":                    {chain: whole, pin: other.pin(), pinWrong: true},
		"a file, and another pin":    {chain: whole, ca: root.pem(), pin: other.pin(), pinWrong: true},
		"presented, but not its own": {chain: []*issued{stranger, elsewhere, root}, pin: root.pin()},
		"trusted by a file, pinned elsewhere": {chain: []*issued{stranger, elsewhere, root},
			ca: elsewhere.pem(), pin: root.pin(), pinWrong: true},
		"another name": {chain: []*issued{named, root}, pin: root.pin()},
	} {
		t.Run(name, func(t *testing.T) {
			at, asked := serving(t, c.chain...)
			u, err := ParseURL(at)
			if err != nil {
				t.Fatal(err)
			}
			trust := Trust{CA: c.ca, Pin: c.pin}
			client, err := trust.Client(nil, u)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Fetcher{Client: client, Waiting: func(error, time.Duration) {}}.Fetch(t.Context(), u)
			if (err == nil) != c.asked || asked.Load() > 0 != c.asked {
				t.Errorf("it was asked %d times: %v", asked.Load(), err)
			}
			if _, wrong := errors.AsType[*PinError](err); wrong != c.pinWrong {
				t.Errorf("it fails with %v", err)
			}
			if c.adds == nil || !c.asked {
				return
			}
			again := NewClient(nil, Roots(trust.Kept()))
			if _, err := (Fetcher{Client: again}).Fetch(t.Context(), u); err != nil {
				t.Errorf("what is kept is not trusted later: %v", err)
			}
		})
	}
}

// issueFor issues a certificate for a name alone.
func issueFor(t *testing.T, by *issued, name string) *issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, by.Certificate, &key.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	is, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &issued{is, key}
}

// A wrong pin is not tried again: nothing was sent, and another server may be answering.
func TestWrongPinEnds(t *testing.T) {
	root := issue(t, nil, "root", true)
	at, _ := serving(t, issue(t, root, "provider.example", false), root)
	u, err := ParseURL(at)
	if err != nil {
		t.Fatal(err)
	}
	trust := Trust{Pin: issue(t, nil, "root", true).pin()}
	client, err := trust.Client(nil, u)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Fetcher{Client: client, For: time.Hour, Waiting: func(err error, _ time.Duration) {
		t.Errorf("it is tried again after %v", err)
	}}.Fetch(context.Background(), u)
	if _, wrong := errors.AsType[*PinError](err); !wrong {
		t.Errorf("it fails with %v", err)
	}
}

func TestParsePin(t *testing.T) {
	good := issue(t, nil, "root", true).pin()
	for _, bad := range []string{"sha256:", good[7:], good + "0", "sha512:" + good[7:], "sha256:zz" +
		good[9:]} {
		if _, err := (&Trust{Pin: bad}).Client(nil, URL{}); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	if _, err := (&Trust{CA: []byte("no certificate")}).Client(nil, URL{}); err == nil {
		t.Error("a file without a certificate is taken")
	}
}

// The pin counts however the URL spells the name of its server; only a proxy that is asked over TLS
// is known by the CAs alone.
func TestPinWithAnySpelling(t *testing.T) {
	root := issue(t, nil, "root", true)
	pin := issue(t, nil, "root", true).pin()
	for _, host := range []string{
		"provider.example", "provider.example.", "Provider.Example", "b\u00fccher.example",
		"127.0.0.1",
	} {
		ascii := map[string]string{"b\u00fccher.example": "xn--bcher-kva.example"}[host]
		at, asked := serving(t, issue(t, root, cmp.Or(ascii, strings.Trim(host, ".")), false), root)
		where, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		u, err := ParseURL("https://" + host + "/b?" + secretPart)
		if err != nil {
			t.Fatal(err)
		}
		trust := Trust{CA: root.pem(), Pin: pin}
		client, err := trust.Client(nil, u)
		if err != nil {
			t.Fatal(err)
		}
		client.Transport.(*http.Transport).DialContext = func(
			ctx context.Context, network, _ string,
		) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, where.Host)
		}
		_, err = Fetcher{Client: client}.Fetch(t.Context(), u)
		if _, wrong := errors.AsType[*PinError](err); !wrong || asked.Load() > 0 {
			t.Errorf("%s was asked %d times: %v", host, asked.Load(), err)
		}
	}
}

// A proxy that is asked over TLS is known by the CAs, and the server behind it by the pin.
func TestPinBehindATLSProxy(t *testing.T) {
	root := issue(t, nil, "root", true)
	other := issue(t, root, "provider.example", false)
	for name, pinned := range map[string]*issued{"the server's": other, "the proxy's": nil} {
		at, asked := serving(t, other, root)
		behind, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		own := issue(t, root, "proxy.example", false)
		proxy := httptest.NewUnstartedServer(tunnel(t, behind.Host))
		proxy.TLS = &tls.Config{Certificates: []tls.Certificate{
			{Certificate: [][]byte{own.Raw}, PrivateKey: own.key}}}
		proxy.StartTLS()
		defer proxy.Close()
		u, err := ParseURL("https://provider.example/b?" + secretPart)
		if err != nil {
			t.Fatal(err)
		}
		trust := Trust{CA: root.pem(), Pin: cmp.Or(pinned, own).pin()}
		through := &url.URL{Scheme: "https", Host: "proxy.example"}
		client, err := trust.Client(http.ProxyURL(through), u)
		if err != nil {
			t.Fatal(err)
		}
		client.Transport.(*http.Transport).DialContext = func(
			ctx context.Context, network, _ string,
		) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, proxy.Listener.Addr().String())
		}
		_, err = Fetcher{Client: client}.Fetch(t.Context(), u)
		if (err == nil) != (pinned != nil) || asked.Load() > 0 != (pinned != nil) {
			t.Errorf("with the pin of %s: asked %d times, %v", name, asked.Load(), err)
		}
	}
}

// tunnel is a proxy that connects to one server, whichever is asked for.
func tunnel(t *testing.T, to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		server, err := net.Dial("tcp", to)
		if err != nil {
			t.Error(err)
			return
		}
		defer server.Close()
		w.WriteHeader(http.StatusOK)
		client, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer client.Close()
		go func() { _, _ = io.Copy(server, buffered) }()
		_, _ = io.Copy(client, server)
	}
}
