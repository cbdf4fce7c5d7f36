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
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
)

// write writes a file and returns its path.
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
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	private := must(x509.MarshalECPrivateKey(key))
	return Listen{CertFile: write(t, dir, "tls.crt", encode("CERTIFICATE", der)),
		KeyFile: write(t, dir, "tls.key", encode("EC PRIVATE KEY", private))}
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func TestRefusedSettings(t *testing.T) {
	tests := []struct {
		text string
		want []string
	}{
		{``, []string{"cannot read", "is empty"}},
		{"{\n \"logLevel\": \"info\",}", []string{"line 2, column 21: invalid character '}'"}},
		{`{"tenantId": "t"} {"x": broken`, []string{"line 1, column 19: invalid character '{'"}},
		{`{"dataDir": "/a", "dataDir": "/b"}`, []string{`dataDir: is given twice: keep one`}},
		{`{"nodeDefaults": {"node": {"a": 1, "a": 2}}}`, []string{"nodeDefaults.node.a: is given twice"}},
		{`{"listn": {}}`, []string{`unknown field "listn"`}},
		{`{"dataDir": "/a", "datadir": "/b"}`, []string{`unknown field "datadir"`}},
		{`{}`, []string{"listen: set", "dataDir: set exactly one", "keysFile:", "tenantId:", "publicURL:",
			"installation:"}},
		{`{"listen": {"address": ":1"}, "dataDir": "x", "etcd": {"endpoints": []},
			"publicURL": "http://x", "keysFile": "k", "tenantId": "t", "logLevel": "loud",
			"roleAssignments": [{"scope": "x"}], "nodeDefaults": {"node": {"maxPods": -1}},
			"authentication": {"issuers": [{"url": "u", "keysURL": "http://x"}]}}`,
			[]string{"listen: needs", "exactly one of dataDir and etcd", "publicURL: must be an https URL",
				"authentication.audiences: must be set", "authentication.issuers[0]", "roleAssignments[0]",
				"etcd.endpoints", "logLevel", "nodeDefaults: -1"}},
		{`{"listen": {}, "azure": {"resourceManagerEndpoint": "https://arm.example"}, "authentication": {
			"audiences": ["api://x", "https://Management.core.windows.net/", "https://arm.example/"]}}`,
			[]string{"authentication.issuers: must be set",
				"authentication.audiences[1]: is the audience of Resource Manager",
				"authentication.audiences[2]: is"}},
		{`{"armListen": {"address": ":1"}, "debugAddress": "0.0.0.0:6060", "installation": "a b",
			"polls": {"waitSeconds": 51}, "limits": {"connections": {"max": 0}},
			"etcd": {"endpoints": ["https://a:1", "http://b:1", "c:1", "unix:///d"]},
			"clusters": [{"id": "/x", "kubeconfig": "/k/a"}]}`,
			[]string{"armListen: machines cannot fetch", "debugAddress: must be a loopback address",
				"polls.waitSeconds: must be 0 to 50", "limits.connections: needs",
				"etcd.endpoints[1]: must begin with https", "etcd.endpoints[2]: must begin with https",
				"installation: must be", "clusters[0]: id"}},
	}
	for _, tt := range tests {
		_, err := Load(write(t, t.TempDir(), "settings.json", tt.text))
		has(t, tt.text, fmt.Sprint(err), tt.want...)
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
		is := func() bool {
			return strings.Contains(fmt.Sprint(s.check()), "is the audience of Resource Manager")
		}
		if is() != refused || s.audience() != audience || len(s.Allowed()) != 0 {
			t.Errorf("%s: %v", audience, s.check())
		}
		s.Authentication.AllowResourceManager = true
		if is() || len(s.Allowed()) != 1 {
			t.Errorf("%s is allowed: %v, %q", audience, s.check(), s.Allowed())
		}
	}
}

// A replaced file is used without a restart; a broken one is not.
func TestFilesAreReadAgain(t *testing.T) {
	path := write(t, t.TempDir(), "file", "first")
	read := func() (string, error) {
		text, err := os.ReadFile(path)
		if string(text) == "broken" {
			err = errors.New("it is broken")
		}
		return string(text), err
	}
	synctest.Test(t, func(t *testing.T) {
		get := reread(read)
		for _, tt := range []struct{ text, want string }{
			{"first", "first"}, {"second", "second"}, {"broken", "second"}, {"third", "third"},
		} {
			must(0, os.WriteFile(path, []byte(tt.text), 0o600))
			equal(t, tt.text, must(get()), tt.want)
			time.Sleep(rereadInterval)
		}
	})
	must(0, os.Remove(path))
	_, err := reread(read)()
	equal(t, "a file is not there", errors.Is(err, os.ErrNotExist), true)
}

// A replaced secret is used without a restart. Connections to Azure are checked.
func TestSecretIsReplaced(t *testing.T) {
	sim := &azuresim.Sim{}
	t.Cleanup(sim.Close)
	sim.Load(azuresim.World{Applications: []azuresim.Application{{
		ClientID: azProvider.ClientID, ObjectID: azProvider.ObjectID,
		Secrets: []azuresim.Secret{{Value: "second"}}}}})
	server := httptest.NewTLSServer(sim)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	settings := Settings{
		CAFile: write(t, dir, "ca.pem", encode("CERTIFICATE", server.Certificate().Raw)),
		Azure: &Azure{AuthorityHost: server.URL, ResourceManagerEndpoint: server.URL,
			TenantID: azuresim.DefaultTenant, ClientID: azProvider.ClientID,
			ClientSecretFile: write(t, dir, "secret", "")},
	}
	_, err := newOutgoing(settings)
	has(t, "an empty secret", fmt.Sprint(err), "cannot use the provider's identity")
	synctest.Test(t, func(t *testing.T) {
		write(t, dir, "secret", "first")
		o := must(newOutgoing(settings))
		if h := o.client.Transport.(*http.Transport).HTTP2; h == nil || h.PingTimeout == 0 {
			t.Error("a path that dies silently is used")
		}
		for _, secret := range []string{"first", "second", ""} {
			write(t, dir, "secret", secret)
			time.Sleep(rereadInterval)
			_, err := o.credential.GetToken(t.Context(),
				policy.TokenRequestOptions{Scopes: []string{server.URL + "/.default"}})
			if (err == nil) != (secret != "first") {
				t.Errorf("with %q: %v", secret, err)
			}
			o.client.CloseIdleConnections()
		}
	})
}

// A listener that takes handshakes in turns requires client certificates of the file's present CA.
func TestClientCAIsReplaced(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	l, client := pair(t, dir, "server"), pair(t, other, "manager")
	now := must(tls.LoadX509KeyPair(client.CertFile, client.KeyFile))
	for ca, want := range map[string]bool{l.CertFile: false, client.CertFile: true} {
		config := must(tlsConfig(l, ca))
		listener := must(listen("127.0.0.1:0", config, &fair.Connections{}, usualPatience))
		server := newServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler), usualPatience)
		go func() { _ = server.Serve(listener) }()
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true,
			Certificates: []tls.Certificate{now}}}
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

// bounded serves over TLS with limits, and returns the address, and a client that trusts it.
func bounded(
	t *testing.T, n fair.Network, p patience, h http.Handler,
) (address string, of *fair.Connections, newClient func() *http.Client) {
	trusted := httptest.NewTLSServer(nil) // for its certificate
	t.Cleanup(trusted.Close)
	server := newServer(h, slog.New(slog.DiscardHandler), p)
	of = &fair.Connections{Max: n.Max, PerAddress: n.PerAddress}
	server.ConnState = of.State
	l := must(listen("127.0.0.1:0", &tls.Config{Certificates: trusted.TLS.Certificates}, of, p))
	go func() { _ = server.Serve(l) }() // ends with Close
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().String(), of, func() *http.Client {
		transport := trusted.Client().Transport.(*http.Transport).Clone()
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
}

func dial(t *testing.T, address string) net.Conn {
	c := must(net.Dial("tcp", address))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ended waits until the other side has closed a connection.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	must(0, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err := io.Copy(io.Discard, c)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Error("the connection is held open")
	}
}

func poll(t *testing.T, client *http.Client, address string) {
	t.Helper()
	r := must(client.Get("https://" + address))
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil || r.StatusCode != http.StatusNotModified {
		t.Errorf("%s, %v", r.Status, err)
	}
}

var unmodified = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusNotModified)
})

// Clients that hold connections make room for others, those that are quiet for longest first.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]fair.Network{
		"of all": {Max: 8, PerAddress: 100}, "of one address": {Max: 100, PerAddress: 8},
	} {
		t.Run(name, func(t *testing.T) {
			address, of, newClient := bounded(t, n, usualPatience, unmodified)
			agent := newClient()
			poll(t, agent, address) // and it is idle then
			var silent []net.Conn
			for range 20 {
				silent = append(silent, dial(t, address))
			}
			for range 5 {
				poll(t, newClient(), address)
			}
			poll(t, agent, address)
			ended(t, silent[0])
			if open := of.Open(); open > 8 {
				t.Errorf("%d connections", open)
			}
		})
	}
}

// While all connections are active, another one is refused at once, and admitted later.
func TestConnectionsAreRefused(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	address, of, newClient := bounded(t, fair.Network{Max: 2, PerAddress: 100}, usualPatience,
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			begun <- struct{}{}
			<-end
			w.WriteHeader(http.StatusNotModified)
		}))
	answered := make(chan struct{})
	for range 2 {
		client := newClient()
		go func() {
			poll(t, client, address)
			client.CloseIdleConnections()
			answered <- struct{}{}
		}()
		<-begun
	}
	ended(t, dial(t, address))
	equal(t, "open connections", of.Open(), 2)
	close(end)
	<-answered
	<-answered
	go func() { <-begun }()
	poll(t, newClient(), address)
}

// A client that sends its header or body slowly, or without end, is not waited for.
func TestLyingClients(t *testing.T) {
	t.Parallel()
	bounds := patience{time.Second, time.Second, 4 << 10}
	address, _, newClient := bounded(t, fair.DefaultLimits().Connections, bounds, http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 1<<10)); err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			w.WriteHeader(http.StatusNotModified)
		}))
	plain := dial(t, address) // no handshake
	secured := func() net.Conn {
		c := tls.Client(dial(t, address), &tls.Config{InsecureSkipVerify: true}) // of a liar
		must(0, c.Handshake())
		return c
	}
	for name, says := range map[string]string{
		"header": "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ",
		"body":   "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"large":  "GET / HTTP/1.1\r\nHost: x\r\nX-Large: " + strings.Repeat("x", 64<<10),
		"endless": "PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat("400\r\n"+strings.Repeat("x", 1024)+"\r\n", 4),
	} {
		t.Run(name, func(t *testing.T) {
			c := secured()
			_, _ = io.WriteString(c, says) // the server may have closed it
			ended(t, c)
		})
	}
	ended(t, plain)
	poll(t, newClient(), address)
}

// timed notes the deadline of an answer.
type timed struct {
	*httptest.ResponseRecorder
	until []time.Time
}

func (d *timed) SetWriteDeadline(at time.Time) error {
	d.until = append(d.until, at)
	return nil
}

// A client has some seconds to read an answer, from its beginning on, however long it has waited.
func TestAnswersEnd(t *testing.T) {
	for body, want := range map[string]int{"": 0, "x": 1} {
		w := &timed{ResponseRecorder: httptest.NewRecorder()}
		s := &service{health: &health{}}
		s.leave(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			for range body {
				must(w.Write([]byte(body)))
				must(w.Write([]byte(body)))
			}
		})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		equal(t, "deadlines of "+body, len(w.until), want)
		for _, at := range w.until {
			if left := time.Until(at); left < answerTime/2 || left > answerTime {
				t.Errorf("%s to read the answer", left)
			}
		}
	}
}
