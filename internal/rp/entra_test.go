package rp

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	tenant   = "99999999-0000-0000-0000-000000000000"
	audience = "https://management.azure.com"
	clientA  = "aaaaaaaa-0000-0000-0000-00000000000a"
	clientB  = "aaaaaaaa-0000-0000-0000-00000000000b"
)

// issuer signs tokens and shows its keys, as Entra ID does.
type issuer struct {
	*httptest.Server
	mu   sync.Mutex
	keys map[string]*rsa.PrivateKey // by kid
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{keys: map[string]*rsa.PrivateKey{}}
	i.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		var keys []any
		for kid, key := range i.keys {
			b64 := base64.RawURLEncoding.EncodeToString
			keys = append(keys, map[string]any{"kty": "RSA", "use": "sig", "kid": kid, "n": b64(key.N.Bytes()), "e": b64(big.NewInt(int64(key.E)).Bytes())})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": keys})
	}))
	t.Cleanup(i.Close)
	i.add(t, "one")
	return i
}

func (i *issuer) add(t *testing.T, kid string) {
	t.Helper()
	key := must(rsa.GenerateKey(rand.Reader, 2048))
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys[kid] = key
}

// claims are those of a good token for an application.
func (i *issuer) claims(now time.Time, app string) jwt.MapClaims {
	return jwt.MapClaims{"iss": i.URL + "/", "aud": audience + "/", "tid": tenant, "oid": "object-of-" + app, "appid": app, "idtyp": "app", "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix()}
}

func (i *issuer) sign(t *testing.T, kid string, c jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, c)
	token.Header["kid"] = kid
	i.mu.Lock()
	defer i.mu.Unlock()
	return must(token.SignedString(i.keys[kid]))
}

// guarded is a world whose callers need tokens.
func guarded(t *testing.T) (*world, *issuer) {
	t.Helper()
	w, i := newWorld(t), newIssuer(t)
	w.register("")
	entra, err := NewEntra(t.Context(), []Issuer{{URL: i.URL + "/", TenantID: tenant, KeysURL: i.URL}}, []string{audience}, i.Client(), w.clock.now)
	if err != nil {
		t.Fatal(err)
	}
	w.front = w.server.Direct(entra)
	return w, i
}

func TestTokensThatAreNoGood(t *testing.T) {
	t.Parallel()
	w, i := guarded(t)
	now := w.clock.now()
	with := func(key string, value any) jwt.MapClaims {
		c := i.claims(now, clientA)
		if c[key] = value; value == nil {
			delete(c, key)
		}
		return c
	}
	unsigned := must(jwt.NewWithClaims(jwt.SigningMethodNone, i.claims(now, clientA)).SignedString(jwt.UnsafeAllowNoneSignatureType))
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(&i.keys["one"].PublicKey))})
	confused := jwt.NewWithClaims(jwt.SigningMethodHS256, i.claims(now, clientA))
	confused.Header["kid"] = "one"
	stranger := &issuer{keys: map[string]*rsa.PrivateKey{"one": must(rsa.GenerateKey(rand.Reader, 2048)), "two": must(rsa.GenerateKey(rand.Reader, 2048))}}
	good := i.sign(t, "one", i.claims(now, clientA))
	parts := strings.Split(good, ".")
	payload := base64.RawURLEncoding.EncodeToString([]byte(`{"appid":"` + clientB + `"}`))
	tests := []struct{ name, header, code string }{
		{"none at all", "", "AuthenticationFailed"},
		{"another scheme", "Basic dXNlcjpwYXNz", "AuthenticationFailed"},
		{"expired", "Bearer " + i.sign(t, "one", with("exp", now.Add(-leeway-time.Second).Unix())), "ExpiredAuthenticationToken"},
		{"without expiry", "Bearer " + i.sign(t, "one", with("exp", nil)), "InvalidAuthenticationToken"},
		{"not yet valid", "Bearer " + i.sign(t, "one", with("nbf", now.Add(leeway+time.Second).Unix())), "InvalidAuthenticationToken"},
		{"for somebody else", "Bearer " + i.sign(t, "one", with("aud", "https://graph.microsoft.com")), "InvalidAuthenticationToken"},
		{"of another issuer", "Bearer " + i.sign(t, "one", with("iss", "https://evil.example/")), "InvalidAuthenticationToken"},
		{"of another tenant", "Bearer " + i.sign(t, "one", with("tid", "88888888-0000-0000-0000-000000000000")), "InvalidAuthenticationTokenTenant"},
		{"without signature", "Bearer " + unsigned, "InvalidAuthenticationToken"},
		{"signed with the public key", "Bearer " + must(confused.SignedString(public)), "InvalidAuthenticationToken"},
		{"signed by a stranger", "Bearer " + stranger.sign(t, "one", i.claims(now, clientA)), "InvalidAuthenticationToken"},
		{"signed by a stranger with an unknown key", "Bearer " + stranger.sign(t, "two", i.claims(now, clientA)), "InvalidAuthenticationToken"},
		{"with another payload", "Bearer " + parts[0] + "." + payload + "." + parts[2], "InvalidAuthenticationToken"},
		{"cut off", "Bearer " + good[:len(good)-5], "InvalidAuthenticationToken"},
		{"endless", "Bearer " + strings.Repeat("a", 20<<10), "InvalidAuthenticationToken"},
	}
	for _, tt := range tests {
		headers := []string{}
		if tt.header != "" {
			headers = append(headers, "Authorization: "+tt.header)
		}
		r, text := w.must(401, "GET", nodeURL("n"), "", headers...)
		if code(text) != tt.code || !strings.HasPrefix(r.Header.Get("WWW-Authenticate"), "Bearer authorization_uri=") {
			t.Errorf("%s: %s, WWW-Authenticate %q", tt.name, text, r.Header.Get("WWW-Authenticate"))
		}
	}
	_, text := w.must(403, "GET", nodeURL("n"), "", "Authorization: Bearer "+good)
	if code(text) != "AuthorizationFailed" || !strings.Contains(text, "flexNodeConfig/read") {
		t.Errorf("a good token without a role: %s", text)
	}
	w.must(200, "GET", "/providers/Microsoft.ContainerService/operations"+versionQuery, "")
	// What has been verified is not verified again, and yet expires.
	w.clock.pass(time.Hour + leeway + time.Second)
	w.must(401, "GET", nodeURL("n"), "", "Authorization: Bearer "+good)
	// A new key is found when a token is signed with it.
	i.add(t, "three")
	w.must(403, "GET", nodeURL("n"), "", "Authorization: Bearer "+i.sign(t, "three", i.claims(w.clock.now(), clientA)))
}

// A node's identity reads and reports for its own node, and does nothing else.
func TestANodeIsOnlyItself(t *testing.T) {
	t.Parallel()
	w, i := guarded(t)
	operator := i.claims(w.clock.now(), "operator")
	operator["oid"] = "operator"
	ops := "Authorization: Bearer " + i.sign(t, "one", operator)
	node := func(client string) string {
		return `{"properties":{"continuousMonitoring":true,"azureAuth":{"method":"servicePrincipal","servicePrincipal":{"clientId":"` + client + `","clientSecret":"x"}}}}`
	}
	w.must(201, "PUT", nodeURL("a"), node(clientA), ops)
	w.must(201, "PUT", nodeURL("b"), node(clientB), ops)
	machine := "/subscriptions/" + subscription + "/resourceGroups/Edge/providers/Microsoft.HybridCompute/machines/c"
	w.must(201, "PUT", nodeURL("c"), `{"properties":{"continuousMonitoring":true,"azureAuth":{"method":"arc"},"kubernetesAuth":{"useAzureAuth":true}}}`, ops)
	w.settled()
	a := "Authorization: Bearer " + i.sign(t, "one", i.claims(w.clock.now(), clientA))
	arc := i.claims(w.clock.now(), "arc-app")
	arc["xms_mirid"] = strings.ToUpper(machine)
	c := "Authorization: Bearer " + i.sign(t, "one", arc)

	r, _ := w.must(200, "GET", nodeURL("a"), "", a)
	w.must(304, "GET", nodeURL("A"), "", a, "If-None-Match: "+r.Header.Get("ETag"))
	w.must(204, "POST", nodeURL("a", "/reportStatus"), `{"appliedConfigVersion":"1"}`, a)
	w.must(200, "GET", nodeURL("c"), "", c)
	for _, forbidden := range []struct{ method, url, body, who string }{
		{"GET", nodeURL("b"), "", a}, {"POST", nodeURL("b", "/reportStatus"), "{}", a}, {"GET", nodeURL("a"), "", c}, {"GET", nodeURL("nobody"), "", a},
		{"PUT", nodeURL("a"), node(clientA), a}, {"DELETE", nodeURL("a"), "", a}, {"POST", nodeURL("a", "/regenerateToken"), "{}", a}, {"POST", nodeURL("a", "/listConfigUrl"), "{}", a},
		{"GET", cluster + "/flexNodeConfig" + versionQuery, "", a}, {"GET", cluster + versionQuery, "", a}, {"PUT", cluster + versionQuery, `{"location":"x"}`, a},
		{"PUT", "/subscriptions/" + subscription + "?api-version=2.0", `{"state":"Deleted"}`, a},
	} {
		_, text := w.must(403, forbidden.method, forbidden.url, forbidden.body, forbidden.who)
		if code(text) != "AuthorizationFailed" {
			t.Errorf("%s %s: %s", forbidden.method, forbidden.url, text)
		}
	}
	// A conditional poll of another node says no more than any other.
	w.must(403, "GET", nodeURL("b"), "", a, "If-None-Match: "+r.Header.Get("ETag"))
	// A deleted node learns that it is.
	w.must(200, "DELETE", nodeURL("a"), "", ops)
	w.settled()
	if _, text := w.must(404, "GET", nodeURL("a"), "", a); !strings.Contains(text, TombstoneInfo) {
		t.Errorf("a deleted node: %s", text)
	}
	w.must(403, "GET", nodeURL("a"), "", c)
}

// Who comes directly cannot speak with Resource Manager's headers; who shows no certificate of Resource Manager cannot use its listener.
func TestSpoofedHeaders(t *testing.T) {
	t.Parallel()
	w, i := guarded(t)
	token := "Authorization: Bearer " + i.sign(t, "one", i.claims(w.clock.now(), clientA))
	spoofed := []string{token, "x-ms-client-object-id: operator", "x-ms-client-principal-name: ops@example.com", "x-ms-client-app-id: " + clientB, "x-ms-client-tenant-id: " + tenant,
		"x-ms-arm-resource-system-data: {}", "x-ms-identity-url: https://evil.example", "Referer: https://evil.example" + nodeURL("n")}
	w.must(403, "GET", nodeURL("n"), "", spoofed...)

	operator := i.claims(w.clock.now(), "operator")
	operator["oid"] = "operator"
	ops := "Authorization: Bearer " + i.sign(t, "one", operator)
	for n := range 3 {
		w.must(201, "PUT", nodeURL(string(rune('a'+n))), `{"properties":{}}`, ops)
	}
	w.settled()
	_, text := w.must(200, "GET", cluster+"/flexNodeConfig"+versionQuery+"&$top=1", "", ops, "Referer: https://evil.example"+cluster+"/flexNodeConfig")
	if strings.Contains(text, "evil.example") {
		t.Errorf("a caller's Referer is in nextLink: %s", text)
	}

	w.front = w.server.BehindARM(FrontDoor{Names: []string{"arm.example"}})
	_, text = w.must(403, "GET", nodeURL("a"), "", spoofed...)
	if code(text) != "ClientCertificateNotTrusted" {
		t.Errorf("without a client certificate: %s", text)
	}
}

// Behind Resource Manager its word holds: who calls, and which URL was called.
func TestBehindResourceManager(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	w.front = w.server.BehindARM(trusted{FrontDoor{}})
	headers := []string{"x-ms-client-object-id: o", "x-ms-client-app-id: app-of-a-pipeline"}
	public := "https://management.example" + strings.Replace(cluster, "resourceGroups/Edge", "resourcegroups/EDGE", 1) + "/flexNodeConfig/N"
	_, text := w.must(201, "PUT", nodeURL("n"), `{"properties":{}}`, append(headers, "Referer: "+public+versionQuery)...)
	n := shownNode(t, text)
	if n.Name != "N" || !strings.Contains(n.ID, "EDGE") || n.SystemData.CreatedBy != "app-of-a-pipeline" || n.SystemData.CreatedByType != "Application" {
		t.Errorf("%+v %+v", n, n.SystemData)
	}
	w.must(201, "PUT", nodeURL("m"), `{"properties":{}}`, append(headers, "Referer: https://management.example/elsewhere")...)
	w.settled()
	_, text = w.must(200, "GET", cluster+"/flexNodeConfig"+versionQuery+"&$top=1", "", append(headers, "Referer: https://management.example"+cluster+"/flexNodeConfig"+versionQuery+"&$top=1&$filter=x")...)
	if !strings.Contains(text, `"nextLink":"https://management.example/`) || !strings.Contains(text, "filter=x") {
		t.Errorf("nextLink: %s", text)
	}
}

// trusted takes every caller for Resource Manager.
type trusted struct{ FrontDoor }

func (d trusted) Authenticate(r *http.Request) (Caller, error) {
	return Caller{Trusted: true, ObjectID: r.Header.Get("x-ms-client-object-id"), AppID: r.Header.Get("x-ms-client-app-id"), Name: r.Header.Get("x-ms-client-app-id"), Type: "Application"}, nil
}

// A page token is good for the collection that it was given for, and as it was given.
func TestSkipTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := must(skipToken(w.server.Keys, "a", "a/n"))
	if last, ok := readSkipToken(w.server.Keys, "a", token); !ok || last != "a/n" {
		t.Errorf("%q %v", last, ok)
	}
	if _, ok := readSkipToken(w.server.Keys, "b", token); ok {
		t.Error("a token is good for another collection")
	}
	for i := range len(token) {
		bent := []byte(token)
		bent[i] = map[bool]byte{true: 'B', false: 'A'}[bent[i] == 'A']
		if _, ok := readSkipToken(w.server.Keys, "a", string(bent)); ok {
			t.Fatalf("a token whose character %d was changed is good", i)
		}
	}
}

func TestWildcards(t *testing.T) {
	tests := []struct {
		pattern, action string
		want            bool
	}{
		{"*", "Microsoft.ContainerService/managedClusters/read", true},
		{"*/read", "Microsoft.ContainerService/managedClusters/read", true},
		{"*/read", "Microsoft.ContainerService/managedClusters/write", false},
		{"microsoft.containerservice/managedclusters/flexNodeConfig/*", "Microsoft.ContainerService/managedClusters/flexNodeConfig/regenerateToken/action", true},
		{"Microsoft.ContainerService/managedClusters/read", "Microsoft.ContainerService/managedClusters/flexNodeConfig/read", false},
	}
	for _, tt := range tests {
		if got := allows([]string{tt.pattern}, tt.action); got != tt.want {
			t.Errorf("%s %s: %v", tt.pattern, tt.action, got)
		}
	}
	if within("/subscriptions/ab", "/subscriptions/a") || !within("/subscriptions/A/x", "/subscriptions/a") || !within("/x", "/") {
		t.Error("scopes")
	}
}

// FuzzRequest sends anything as a request: the answer is an answer of ARM, and never an internal error.
func FuzzRequest(f *testing.F) {
	f.Add("GET", nodeURL("n"), "")
	f.Add("PUT", nodeURL("n"), withPrincipal)
	f.Add("PUT", nodeURL("n")+"&configUrl=true", withToken)
	f.Add("POST", nodeURL("n", "/reportStatus"), `{"conditions":[{"type":"A","status":"True"}]}`)
	f.Add("GET", cluster+"/flexNodeConfig"+versionQuery+"&$top=1&$skipToken=x", "")
	f.Add("PUT", cluster+versionQuery, `{"location":"x","properties":{"podCidr":"10.0.0.0/8","nodeCidrMask":24}}`)
	f.Add("DELETE", "/subscriptions/%2e%2e/x?api-version=1", "\x00")
	w := newWorld(f)
	w.register("")
	f.Fuzz(func(t *testing.T, method, url, body string) {
		if strings.ContainsAny(method, " \r\n\t") || method == "" || !strings.HasPrefix(url, "/") || strings.ContainsAny(url, " \r\n\t\x00\x7f") {
			return
		}
		r, err := http.NewRequest(method, "https://provider.example"+url, strings.NewReader(body))
		if err != nil || r.URL.Host != "provider.example" {
			return
		}
		r.Header.Set("Content-Type", "application/json")
		recorder := httptest.NewRecorder()
		w.front.ServeHTTP(recorder, r)
		if recorder.Code >= 500 {
			t.Fatalf("%d %s", recorder.Code, recorder.Body)
		}
		if recorder.Code >= 400 && code(recorder.Body.String()) == "" {
			t.Fatalf("no error of ARM: %d %s", recorder.Code, recorder.Body)
		}
	})
}
