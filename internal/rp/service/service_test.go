package service

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// write makes a file and returns its path.
func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must(0, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// pair makes a certificate for 127.0.0.1 and returns the paths of it and its key.
func pair(t *testing.T, dir, name string) Listen {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP("127.0.0.1")}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	private := must(x509.MarshalECPrivateKey(key))
	return Listen{
		CertFile: write(t, dir, "tls.crt", encode("CERTIFICATE", der)),
		KeyFile:  write(t, dir, "tls.key", encode("EC PRIVATE KEY", private)),
	}
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func TestRefusedSettings(t *testing.T) {
	tests := []struct {
		text string
		want []string
	}{
		{`{`, []string{"cannot read"}},
		{`{"listn": {}}`, []string{`unknown field "listn"`}},
		{`{}`, []string{
			"listen: set", "dataDir: set exactly one", "keysFile:", "tenantId:", "publicURL:",
			"installation:",
		}},
		{`{"listen": {"address": ":1"}, "dataDir": "x", "etcd": {"endpoints": []},
			"publicURL": "http://x", "keysFile": "k", "tenantId": "t", "logLevel": "loud",
			"roleAssignments": [{"scope": "x"}], "nodeDefaults": {"node": {"maxPods": -1}},
			"authentication": {"issuers": [{"url": "u", "keysURL": "http://x"}]}}`,
			[]string{
				"listen: needs", "exactly one of dataDir and etcd",
				"publicURL: must be an https URL", "authentication.audiences: must be set",
				"authentication.issuers[0]", "roleAssignments[0]", "etcd.endpoints", "logLevel",
				"nodeDefaults: -1",
			}},
		{`{"listen": {}, "azure": {"resourceManagerEndpoint": "https://arm.example"}, "authentication": {
			"audiences": ["api://x", "https://Management.core.windows.net/", "https://arm.example/"]}}`,
			[]string{"authentication.issuers: must be set",
				"authentication.audiences[1]: is Resource Manager's", "authentication.audiences[2]: is"}},
		{`{"armListen": {"address": ":1"}, "debugAddress": "0.0.0.0:6060", "installation": "a b",
			"polls": {"waitSeconds": 51}, "limits": {"connections": {"max": 0}},
			"etcd": {"endpoints": ["https://a:1", "http://b:1", "c:1", "unix:///d"]},
			"clusters": [{"id": "/x", "kubeconfig": "/k/a"}]}`,
			[]string{
				"armListen: machines cannot fetch", "debugAddress: must be an address on loopback",
				"polls.waitSeconds: must be 0 to 50", "limits.connections: needs", "etcd.endpoints[1]: must begin with https",
				"etcd.endpoints[2]: must begin with https",
				"installation: must be", "clusters[0]: id",
			}},
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

// Resource Manager's audience is refused, unless the settings allow it, which the check lists.
func TestAudienceOfResourceManager(t *testing.T) {
	for audience, refused := range map[string]bool{
		"api://aaaaaaaa-0000-4000-8000-000000000001": false, "https://rp.example": false,
		"https://management.azure.com": true, "https://management.chinacloudapi.cn/": true,
	} {
		s := Settings{Listen: &Listen{}}
		s.Authentication.Audiences = []string{audience}
		is := func() bool { return strings.Contains(fmt.Sprint(s.check()), "is Resource Manager's") }
		if is() != refused || s.audience() != audience || len(s.Allowed()) != 0 {
			t.Errorf("%s: %v", audience, s.check())
		}
		s.Authentication.AllowResourceManager = true
		if is() || len(s.Allowed()) != 1 {
			t.Errorf("%s is allowed: %v, %q", audience, s.check(), s.Allowed())
		}
	}
}

// A file that is replaced is used without a restart; one that is broken is not.
func TestFilesAreReadAgain(t *testing.T) {
	path := write(t, t.TempDir(), "file", "first")
	r := &reread[string]{path: path, read: func() (string, error) {
		text, err := os.ReadFile(path)
		if string(text) == "broken" {
			err = errors.New("it is broken")
		}
		return string(text), err
	}}
	for i, tt := range []struct{ text, want string }{
		{"first", "first"}, {"second", "second"}, {"broken", "second"}, {"third", "third"},
	} {
		must(0, os.WriteFile(path, []byte(tt.text), 0o600))
		at := time.Now().Add(time.Duration(i) * time.Second)
		must(0, os.Chtimes(path, time.Time{}, at))
		r.checked = time.Time{} // ten seconds later
		if got, err := r.get(); err != nil || got != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.text, got, err, tt.want)
		}
	}
	if _, err := (&reread[string]{path: path + "x", read: r.read}).get(); err == nil {
		t.Error("a file that is not there is read")
	}
}

// A listener demands client certificates of the CA that is in the file now, handshakes in turns too.
func TestClientCAIsReplaced(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	l, client := pair(t, dir, "server"), pair(t, other, "manager")
	now := must(tls.LoadX509KeyPair(client.CertFile, client.KeyFile))
	for ca, want := range map[string]bool{l.CertFile: false, client.CertFile: true} {
		config := must(tlsConfig(l, ca))
		listener := must(listen("127.0.0.1:0", config, &fair.Connections{}, usualPatience))
		server := newServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler), usualPatience)
		go func() { _ = server.Serve(listener) }()
		transport := &http.Transport{TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, Certificates: []tls.Certificate{now},
		}}
		response, err := (&http.Client{Transport: transport}).Get("https://" + listener.Addr().String())
		if err == nil {
			response.Body.Close()
		}
		if (err == nil) != want {
			t.Errorf("with the CA in %s: %v", ca, err)
		}
		transport.CloseIdleConnections()
		_ = server.Close()
	}
}

// Clients that send a byte now and then are let go, and keep no other client out.
func TestSlowClients(t *testing.T) {
	ok := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }
	server := newServer(http.HandlerFunc(ok), slog.New(slog.DiscardHandler), usualPatience)
	if server.ReadHeaderTimeout == 0 || server.ReadTimeout == 0 || server.WriteTimeout == 0 ||
		server.IdleTimeout == 0 || server.MaxHeaderBytes == 0 {
		t.Fatalf("the server waits without end: %+v", server)
	}
	server.ReadHeaderTimeout = 200 * time.Millisecond
	l := must(listen("127.0.0.1:0", nil, &fair.Connections{}, usualPatience))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	var slow []net.Conn
	for range 200 {
		c := must(net.Dial("tcp", l.Addr().String()))
		defer c.Close()
		must(c.Write([]byte("GET / HTTP/1.1\r\nX-Slow: ")))
		slow = append(slow, c)
	}
	response, err := http.Get("http://" + l.Addr().String())
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", response, err)
	}
	response.Body.Close()
	for _, c := range slow {
		must(0, c.SetReadDeadline(time.Now().Add(10*time.Second)))
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Fatalf("a slow client is still there: %v", err)
		}
	}
}

// A node that is rendered only when its cluster is reached, after the PUT, polls the provider too.
func TestControllersKnowTheEndpoint(t *testing.T) {
	const url = "https://rp.example:8447"
	settings := Settings{PublicURL: url, OtherURLs: []string{url}, Installation: "here", TenantID: "t",
		KeysFile: keysFile(t, t.TempDir())}
	s := newService(settings, All, storetest.NewMemory())
	s.begin(t.Context())
	if text := string(s.clusters.Defaults.Text); !strings.Contains(text, `"endpoint":"`+url+`"`) {
		t.Errorf("the layer of defaults is %s", text)
	}
}
