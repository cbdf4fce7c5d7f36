package service

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
)

// write makes a file and returns its path.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pair makes a certificate for 127.0.0.1 and returns the paths of it and its key.
func pair(t *testing.T, dir, name string) Listen {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP("127.0.0.1")}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Listen{
		CertFile: write(t, dir, "tls.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		KeyFile:  write(t, dir, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))),
	}
}

func TestSettingsThatAreNoGood(t *testing.T) {
	tests := []struct {
		text string
		want []string
	}{
		{`{`, []string{"cannot read"}},
		{`{"listn": {}}`, []string{`unknown field "listn"`}},
		{`{}`, []string{"listen: set", "dataDir: set exactly one", "keysFile:", "tenantId:", "publicURL:"}},
		{`{"listen": {"address": ":1"}, "dataDir": "x", "etcd": {"endpoints": []}, "publicURL": "http://x", "keysFile": "k", "tenantId": "t", "logLevel": "loud",
			"roleAssignments": [{"scope": "x"}], "nodeDefaults": {"node": {"maxPods": -1}}, "authentication": {"issuers": [{"url": "u", "keysURL": "http://x"}]}}`,
			[]string{"listen: needs", "exactly one of dataDir and etcd", "publicURL: must be an https URL", "authentication: needs", "authentication.issuers[0]", "roleAssignments[0]", "etcd.endpoints", "logLevel", "nodeDefaults: -1"}},
	}
	for _, tt := range tests {
		_, err := Load(write(t, t.TempDir(), "settings.json", tt.text))
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s:\ngot %v\nwant %s", tt.text, err, want)
			}
		}
	}
}

// A certificate that is replaced is used without a restart; one that is broken is not.
func TestCertificateIsReplaced(t *testing.T) {
	dir := t.TempDir()
	l := pair(t, dir, "first")
	c := &certificate{certFile: l.CertFile, keyFile: l.KeyFile}
	name := func() string {
		c.looked = time.Time{} // ten seconds later
		got, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(got.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.Subject.CommonName
	}
	if got := name(); got != "first" {
		t.Errorf("got %s", got)
	}
	pair(t, dir, "second")
	if err := os.Chtimes(l.CertFile, time.Time{}, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := name(); got != "second" {
		t.Errorf("got %s", got)
	}
	write(t, dir, "tls.crt", "broken")
	if got := name(); got != "second" {
		t.Errorf("a broken certificate was used: %s", got)
	}
}

// Clients that send a byte now and then are let go, and keep nobody else out.
func TestSlowClients(t *testing.T) {
	server := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }), slog.New(slog.DiscardHandler))
	if server.ReadHeaderTimeout == 0 || server.ReadTimeout == 0 || server.WriteTimeout == 0 || server.IdleTimeout == 0 || server.MaxHeaderBytes == 0 {
		t.Fatalf("the server waits without end: %+v", server)
	}
	server.ReadHeaderTimeout = 200 * time.Millisecond
	l, err := listen("127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	var slow []net.Conn
	for range 200 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("GET / HTTP/1.1\r\nX-Slow: ")); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, c)
	}
	response, err := http.Get("http://" + l.Addr().String())
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", response, err)
	}
	response.Body.Close()
	for _, c := range slow {
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Fatalf("a slow client is still there: %v", err)
		}
	}
}

// The whole program: it starts on an empty directory, answers, says that it is draining, and ends.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	keys := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"keys":[]}`) }))
	defer keys.Close()
	l := pair(t, dir, "provider")
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	l.Address = free()
	if _, err := seal.Init(filepath.Join(dir, "keys.json")); err != nil {
		t.Fatal(err)
	}
	settings := Settings{
		Listen: &l, MetricsAddress: free(), PublicURL: "https://" + l.Address, DataDir: filepath.Join(dir, "data"), KeysFile: filepath.Join(dir, "keys.json"), TenantID: "t", LogLevel: "error",
		Authentication: Authentication{Issuers: []rp.Issuer{{URL: keys.URL, TenantID: "t", KeysURL: keys.URL}}, Audiences: []string{"a"}},
		CAFile:         write(t, dir, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: keys.Certificate().Raw}))),
	}
	text, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(write(t, dir, "settings.json", string(text)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, loaded, io.Discard) }()
	pool, err := readPool(l.CertFile)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	get := func(url string) (int, string) {
		response, err := client.Get(url)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(body)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if status, text := get("https://" + l.Address + "/readyz"); status == 200 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("not ready: %d %s", status, text)
		}
	}
	for url, want := range map[string]struct {
		status int
		text   string
	}{
		"https://" + l.Address + "/livez":                                        {200, "ok"},
		"https://" + l.Address + "/openapi.json":                                 {200, "flexNodeConfig"},
		"https://" + l.Address + "/metrics":                                      {400, "MissingApiVersionParameter"}, // not for everybody
		"https://" + l.Address + "/configs/x.json":                               {403, "AuthenticationFailed"},
		"http://" + settings.MetricsAddress + "/metrics":                         {200, "flexnode_rp_index_age_seconds"},
		"https://" + l.Address + "/subscriptions?api-version=2026-05-01-preview": {401, "AuthenticationFailed"},
	} {
		if status, text := get(url); status != want.status || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d %.300s; want %d %s", url, status, text, want.status, want.text)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "etcd")); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the end: %v", err)
	}
}
