package front

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

const (
	audience    = "https://management.azure.com"
	clientA     = "aaaaaaaa-0000-0000-0000-00000000000a"
	clientB     = "aaaaaaaa-0000-0000-0000-00000000000b"
	otherTenant = "88888888-0000-0000-0000-000000000000"
)

// issuer signs tokens and shows its keys, as Entra ID does.
type issuer struct {
	*httptest.Server
	mu   sync.Mutex
	keys map[string]*rsa.PrivateKey // by kid
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{keys: map[string]*rsa.PrivateKey{}}
	i.Server = httptest.NewTLSServer(http.HandlerFunc(i.show))
	t.Cleanup(i.Close)
	i.add(t, "one")
	return i
}

func (i *issuer) show(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	b64 := base64.RawURLEncoding.EncodeToString
	var keys []any
	for kid, key := range i.keys {
		keys = append(keys, map[string]any{
			"kty": "RSA", "use": "sig", "kid": kid, "n": b64(key.N.Bytes()),
			"e": b64(big.NewInt(int64(key.E)).Bytes()),
		})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": keys})
}

func (i *issuer) add(t *testing.T, kid string) {
	key := must(rsa.GenerateKey(rand.Reader, 2048))
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys[kid] = key
}

// claims returns the claims of a valid token for an application.
func (i *issuer) claims(now time.Time, app string) jwt.MapClaims {
	return jwt.MapClaims{
		"iss": i.URL + "/", "aud": audience + "/", "tid": tenant, "oid": "object-of-" + app,
		"appid": app, "idtyp": "app", "iat": now.Unix(), "nbf": now.Unix(),
		"exp": now.Add(time.Hour).Unix(),
	}
}

func (i *issuer) sign(t *testing.T, kid string, c jwt.MapClaims) string {
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, c)
	token.Header["kid"] = kid
	i.mu.Lock()
	defer i.mu.Unlock()
	return must(token.SignedString(i.keys[kid]))
}

// as returns the header of a caller with an object id; the operator has all roles.
func (i *issuer) as(t *testing.T, w *world, oid string) string {
	return i.callerWith(t, w, oid, oid)
}

// app returns the header of an application.
func (i *issuer) app(t *testing.T, w *world, app string) string {
	return "Authorization: Bearer " + i.sign(t, "one", i.claims(w.clock.Now(), app))
}

// guarded returns a world whose callers need tokens, and the header of the operator.
func guarded(t *testing.T) (w *world, i *issuer, operator string) {
	t.Helper()
	w, i = newEdge(t), newIssuer(t)
	issuers := []Issuer{
		{URL: i.URL + "/", TenantID: tenant, KeysURL: i.URL},
		{URL: i.URL + "/other/", TenantID: otherTenant, KeysURL: i.URL},
	}
	entra := must(NewEntra(t.Context(), issuers, []string{audience}, i.Client(), w.clock.Now))
	w.front = w.api.Direct(entra)
	return w, i, i.as(t, w, "operator")
}

func TestRefusedTokens(t *testing.T) {
	w, i, _ := guarded(t)
	now := w.clock.Now()
	with := func(key string, value any) string {
		c := i.claims(now, clientA)
		if c[key] = value; value == nil {
			delete(c, key)
		}
		return "Bearer " + i.sign(t, "one", c)
	}
	unsigned := must(jwt.NewWithClaims(jwt.SigningMethodNone, i.claims(now, clientA)).
		SignedString(jwt.UnsafeAllowNoneSignatureType))
	der := must(x509.MarshalPKIXPublicKey(&i.keys["one"].PublicKey))
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	confused := jwt.NewWithClaims(jwt.SigningMethodHS256, i.claims(now, clientA))
	confused.Header["kid"] = "one"
	stranger := &issuer{keys: map[string]*rsa.PrivateKey{
		"one": must(rsa.GenerateKey(rand.Reader, 2048)),
		"two": must(rsa.GenerateKey(rand.Reader, 2048)),
	}}
	good := i.sign(t, "one", i.claims(now, clientA))
	parts := strings.Split(good, ".")
	payload := base64.RawURLEncoding.EncodeToString([]byte(`{"appid":"` + clientB + `"}`))
	const invalidToken = "InvalidAuthenticationToken"
	tests := []struct{ name, header, code string }{
		{"none at all", "", "AuthenticationFailed"},
		{"another scheme", "Basic dXNlcjpwYXNz", "AuthenticationFailed"},
		{"expired", with("exp", now.Add(-leeway-time.Second).Unix()), "ExpiredAuthenticationToken"},
		{"without expiry", with("exp", nil), invalidToken},
		{"not yet valid", with("nbf", now.Add(leeway+time.Second).Unix()), invalidToken},
		{"for another audience", with("aud", "https://graph.microsoft.com"), invalidToken},
		{"of another issuer", with("iss", "https://evil.example/"), invalidToken},
		{"of another tenant", with("tid", otherTenant), "InvalidAuthenticationTokenTenant"},
		{"without signature", "Bearer " + unsigned, invalidToken},
		{"signed with the public key", "Bearer " + must(confused.SignedString(public)),
			invalidToken},
		{"signed by a stranger",
			"Bearer " + stranger.sign(t, "one", i.claims(now, clientA)), invalidToken},
		{"signed by a stranger with an unknown key",
			"Bearer " + stranger.sign(t, "two", i.claims(now, clientA)), invalidToken},
		{"with another payload", "Bearer " + parts[0] + "." + payload + "." + parts[2],
			invalidToken},
		{"cut off", "Bearer " + good[:len(good)-5], invalidToken},
		{"endless", "Bearer " + strings.Repeat("a", 20<<10), invalidToken},
	}
	for _, tt := range tests {
		headers := []string{}
		if tt.header != "" {
			headers = append(headers, "Authorization: "+tt.header)
		}
		r, text := w.must(401, "GET", nodeURL("n"), "", headers...)
		challenge := r.Header.Get("WWW-Authenticate")
		if code(text) != tt.code || !strings.HasPrefix(challenge, "Bearer authorization_uri=") {
			t.Errorf("%s: %s, WWW-Authenticate %q", tt.name, text, challenge)
		}
	}
	_, text := w.must(403, "GET", nodeURL("n"), "", "Authorization: Bearer "+good)
	if code(text) != "AuthorizationFailed" || !strings.Contains(text, "flexNodeConfig/read") {
		t.Errorf("a good token without a role: %s", text)
	}
	w.must(200, "GET", "/providers/Microsoft.ContainerService/operations"+versionQuery, "")
	// What has been verified is not verified again, and yet expires.
	w.clock.Pass(time.Hour + leeway + time.Second)
	w.must(401, "GET", nodeURL("n"), "", "Authorization: Bearer "+good)
	// A new key is found when a token is signed with it.
	i.add(t, "three")
	fresh := i.sign(t, "three", i.claims(w.clock.Now(), clientA))
	w.must(403, "GET", nodeURL("n"), "", "Authorization: Bearer "+fresh)
}

// nodeOf returns the body of a node with an application.
func nodeOf(client, secret string) string {
	return `{"properties":{"continuousMonitoring":true,"azureAuth":{"method":"servicePrincipal",
		"servicePrincipal":{"clientId":"` + client + `","clientSecret":"` + secret + `"}}}}`
}

// A node's identity can read and report for its own node, and do nothing else.
func TestANodeIsOnlyItself(t *testing.T) {
	w, i, ops := guarded(t)
	w.must(201, "PUT", nodeURL("a"), nodeOf(clientA, "x"), ops)
	w.must(201, "PUT", nodeURL("b"), nodeOf(clientB, "x"), ops)
	machine := "/subscriptions/" + subscription +
		"/resourceGroups/Edge/providers/Microsoft.HybridCompute/machines/c"
	w.settles(201, "PUT", nodeURL("c"), `{"properties":{"continuousMonitoring":true,
		"azureAuth":{"method":"arc"},"kubernetesAuth":{"useAzureAuth":true}}}`, ops)
	a := i.app(t, w, clientA)
	arc := i.claims(w.clock.Now(), "arc-app")
	arc["xms_mirid"] = strings.ToUpper(machine)
	c := "Authorization: Bearer " + i.sign(t, "one", arc)

	r, _ := w.must(200, "GET", nodeURL("a"), "", a)
	ifNoneMatch := "If-None-Match: " + r.Header.Get("ETag")
	w.must(304, "GET", nodeURL("A"), "", a, ifNoneMatch)
	w.must(204, "POST", nodeURL("a", "/reportStatus"), `{"appliedConfigVersion":"1"}`, a)
	w.must(200, "GET", nodeURL("c"), "", c)
	for _, refused := range []struct{ method, url, body, who string }{
		{"GET", nodeURL("b"), "", a},
		{"POST", nodeURL("b", "/reportStatus"), "{}", a},
		{"POST", nodeURL("b", "/refreshCredentials"), "{}", a},
		{"GET", nodeURL("a"), "", c},
		{"GET", nodeURL("nobody"), "", a},
		{"PUT", nodeURL("a"), nodeOf(clientA, "x"), a},
		{"DELETE", nodeURL("a"), "", a},
		{"POST", nodeURL("a", "/regenerateToken"), "{}", a},
		{"POST", nodeURL("a", "/listConfigUrl"), "{}", a},
		{"GET", cluster + "/flexNodeConfig" + versionQuery, "", a},
		{"GET", cluster + versionQuery, "", a},
		{"PUT", cluster + versionQuery, `{"location":"x"}`, a},
		{"DELETE", cluster + versionQuery, "", a},
	} {
		_, text := w.must(403, refused.method, refused.url, refused.body, refused.who)
		equal(t, refused.method+" "+refused.url, code(text), "AuthorizationFailed")
	}
	// A conditional poll of another node tells no more than any other.
	w.must(403, "GET", nodeURL("b"), "", a, ifNoneMatch)
	// A deleted node learns that it is.
	w.settles(200, "DELETE", nodeURL("a"), "", ops)
	w.buried("GET", nodeURL("a"), "", a)
	w.must(403, "GET", nodeURL("a"), "", c)
}

// A node's application is neither its namesake in another tenant, nor a person who uses it.
func TestNamesakesAreNotTheNode(t *testing.T) {
	w, i, ops := guarded(t)
	w.settles(201, "PUT", nodeURL("a"), nodeOf(clientA, "x"), ops)
	w.must(200, "GET", nodeURL("a"), "", i.app(t, w, clientA))
	namesake := i.claims(w.clock.Now(), clientA)
	namesake["tid"], namesake["iss"] = otherTenant, i.URL+"/other/"
	delegated := i.claims(w.clock.Now(), clientA)
	delete(delegated, "idtyp")
	delegated["scp"] = "user_impersonation"
	user := i.claims(w.clock.Now(), clientA)
	user["idtyp"] = "user"
	for name, c := range map[string]jwt.MapClaims{
		"its namesake in another tenant": namesake, "a person": delegated, "a user": user,
	} {
		token := "Authorization: Bearer " + i.sign(t, "one", c)
		equal(t, name, w.do("GET", nodeURL("a"), "", token).StatusCode, 403)
	}
}

// Direct callers cannot act as Resource Manager, nor use its listener without its certificate.
func TestSpoofedHeaders(t *testing.T) {
	w, i, ops := guarded(t)
	spoofed := []string{
		i.app(t, w, clientA), "x-ms-client-object-id: operator",
		"x-ms-client-principal-name: ops@example.com", "x-ms-client-app-id: " + clientB,
		"x-ms-client-tenant-id: " + tenant, "x-ms-arm-resource-system-data: {}",
		"x-ms-identity-url: https://evil.example", "Referer: https://evil.example" + nodeURL("n"),
	}
	w.must(403, "GET", nodeURL("n"), "", spoofed...)

	for n := range 3 {
		w.must(201, "PUT", nodeURL(string(rune('a'+n))), `{"properties":{}}`, ops)
	}
	w.caughtUp()
	_, text := w.must(200, "GET", cluster+"/flexNodeConfig"+versionQuery+"&$top=1", "", ops,
		"Referer: https://evil.example"+cluster+"/flexNodeConfig", "Host: evil.example")
	lacks(t, "a list", text, "evil.example")

	w.front = w.api.BehindARM(ManagerCertificate{"arm.example"})
	_, text = w.must(403, "GET", nodeURL("a"), "", spoofed...)
	equal(t, "without a client certificate", code(text), "ClientCertificateNotTrusted")
}

// Only Resource Manager may set the state of a subscription, whatever a caller's roles (M15).
func TestOnlyManagerTellsOfSubscriptions(t *testing.T) {
	w, _, ops := guarded(t)
	w.must(201, "PUT", nodeURL("n"), `{"properties":{}}`, ops)
	w.must(400, "PUT", subscriptionURL, `{"state":"Deleted"}`, ops) // no route has this version
	_, text := w.must(404, "PUT", "/subscriptions/"+subscription+versionQuery,
		`{"state":"Deleted"}`, ops)
	equal(t, "the refusal", code(text), "NotFound")
	w.must(200, "GET", nodeURL("n"), "", ops)
}

// Strangers cannot fill the audit log; refused callers with an identity are in it.
func TestAuditOfStrangers(t *testing.T) {
	w, i, _ := guarded(t)
	before := w.audit.String()
	for _, method := range []string{"GET", "PUT", "DELETE", strings.Repeat("M", 8_000)} {
		r := w.do(method, nodeURL("n"), "")
		if r.StatusCode != 401 {
			t.Errorf("%.8s: %d", method, r.StatusCode)
		}
	}
	equal(t, "the audit log", w.audit.String(), before)
	r := w.do(strings.Repeat("M", 8_000), nodeURL("n"), "", i.app(t, w, clientB))
	got := w.audit.String()[len(before):]
	if r.StatusCode != 405 || strings.Count(got, "\n") != 1 || len(got) > 1_500 ||
		!strings.Contains(got, `"method":"`+strings.Repeat("M", auditedMethod)+`..."`) {
		t.Errorf("%d: %s", r.StatusCode, got)
	}
}

// Behind Resource Manager its headers are trusted: the caller, and the original URL.
func TestBehindResourceManager(t *testing.T) {
	w := newEdge(t)
	w.front = w.manager
	headers := []string{"x-ms-client-object-id: o", "x-ms-client-app-id: app-of-a-pipeline"}
	public := "https://management.example" +
		strings.Replace(cluster, "resourceGroups/Edge", "resourcegroups/EDGE", 1) +
		"/flexNodeConfig/N"
	n := w.node(201, "PUT", nodeURL("n"), `{"properties":{}}`,
		append(headers, "Referer: "+public+versionQuery)...)
	if n.Name != "N" || !strings.Contains(n.ID, "EDGE") ||
		n.SystemData.CreatedBy != "app-of-a-pipeline" ||
		n.SystemData.CreatedByType != "Application" {
		t.Errorf("%+v %+v", n, n.SystemData)
	}
	w.settles(201, "PUT", nodeURL("m"), `{"properties":{}}`,
		append(headers, "Referer: https://management.example/elsewhere")...)
	nodes := cluster + "/flexNodeConfig" + versionQuery + "&$top=1"
	_, text := w.must(200, "GET", nodes, "",
		append(headers, "Referer: https://management.example"+nodes+"&$filter=x")...)
	has(t, "nextLink", text, `"nextLink":"https://management.example/`, "filter=x")
}

// A page token is valid only unchanged, for the collection that it was made for.
func TestSkipTokens(t *testing.T) {
	w := beside(t)
	token := base64.RawURLEncoding.EncodeToString(signed(w.keys, paging, "a", []byte("a/n")))
	last := func(collection, token string) string {
		r := &request{query: url.Values{"$skiptoken": {token}}}
		after, _, _ := w.api.page(r, collection)
		return after
	}
	equal(t, "the last item", last("a", token), "a/n")
	equal(t, "a token of another collection", last("b", token), "")
	for i := range len(token) {
		bent := []byte(token)
		bent[i] = map[bool]byte{true: 'B', false: 'A'}[bent[i] == 'A']
		if last("a", string(bent)) != "" {
			t.Fatalf("a token is taken whose character %d was changed", i)
		}
	}
}

// team is a team with a subscription of its own, in which it may do everything.
type team struct {
	subscription, kubeconfig, who, client string
}

func (t team) cluster() string { return strings.Replace(cluster, subscription, t.subscription, 1) }

func (t team) node(more ...string) string {
	return t.cluster() + "/flexNodeConfig/n" + strings.Join(more, "") + versionQuery
}

// bindings maps the id of each cluster to the kubeconfig that it may name.
type bindings map[string]string // of cluster id in lower case

func (b bindings) Check(clusterID, kubeconfig string) error {
	if b[strings.ToLower(clusterID)] != kubeconfig {
		return errors.New("not bound")
	}
	return nil
}

// Two teams share a provider: each team's attempts on the other's resources are refused and
// audited.
func TestTwoTeams(t *testing.T) {
	w, i, _ := guarded(t)
	a := team{"aaaaaaaa-2222-3333-4444-555555555555", "kube-a", "lead-of-a", clientA}
	b := team{"bbbbbbbb-2222-3333-4444-555555555555", "kube-b", "lead-of-b", clientB}
	bound := bindings{}
	roles := Assignments{}
	for _, x := range []team{a, b} {
		bound[strings.ToLower(x.cluster())] = x.kubeconfig
		roles = append(roles, Assignment{x.who, "/subscriptions/" + x.subscription, []string{"*"}})
	}
	w.api.Kubeconfigs, w.api.Authorizer = bound, roles
	for _, x := range []team{a, b} {
		w.arrive(t, i, x)
	}
	w.caughtUp()
	for _, x := range [][2]team{{a, b}, {b, a}} {
		w.trespass(t, i, x[0], x[1])
	}
	for _, x := range []team{a, b} {
		who := i.as(t, w, x.who)
		n := w.node(200, "GET", x.node(), "", who)
		equal(t, "what is left of the node of "+x.who, n.Properties.ProvisioningState, "Succeeded")
		w.must(200, "POST", x.node("/listConfigUrl"), "{}", who)
	}
}

// arrive registers a team's cluster and makes a node.
func (w *world) arrive(t *testing.T, i *issuer, x team) {
	t.Helper()
	who := i.as(t, w, x.who)
	w.must(200, "POST", "/subscriptions/"+x.subscription+
		"/providers/Microsoft.ContainerService/register?api-version=2021-04-01", "", who)
	w.must(201, "PUT", x.cluster()+versionQuery,
		`{"location":"westeurope","properties":{"kubeconfig":"`+x.kubeconfig+`"}}`, who)
	w.must(201, "PUT", x.node()+"&configUrl=true", nodeOf(x.client, "secret-of-"+x.who), who)
}

// trespass tries everything on another team's resources, as a team and as one of its nodes.
func (w *world) trespass(t *testing.T, i *issuer, x, other team) {
	t.Helper()
	clusterURL := other.cluster() + versionQuery
	operation := strings.Replace(operationURL("00000000-0000-0000-0000-000000000001"),
		subscription, other.subscription, 1)
	body := nodeOf(x.client, "mine")
	attempts := []struct {
		method, url, body string
		status            int
	}{
		{"GET", other.node(), "", 403},
		{"PUT", other.node(), body, 403},
		{"PUT", other.node() + "&configUrl=true", body, 403},
		{"DELETE", other.node(), "", 403},
		{"POST", other.node("/regenerateToken"), "{}", 403},
		{"POST", other.node("/listConfigUrl"), "{}", 403},
		{"POST", other.node("/refreshCredentials"), "{}", 403},
		{"POST", other.node("/reportStatus"), "{}", 403},
		{"GET", other.cluster() + "/flexNodeConfig" + versionQuery, "", 403},
		{"GET", clusterURL, "", 403},
		{"PUT", clusterURL, `{"location":"x","properties":{"kubeconfig":"` + x.kubeconfig + `"}}`,
			403},
		{"DELETE", clusterURL + "&nodes=wipe", "", 403},
		{"DELETE", clusterURL + "&nodes=wipe&dryRun=true", "", 403},
		{"GET", "/subscriptions/" + other.subscription + "/providers/" +
			flexnode.ClusterType + versionQuery, "", 403},
		{"POST", "/subscriptions/" + other.subscription +
			"/providers/Microsoft.ContainerService/register?api-version=2021-04-01", "", 403},
		{"PUT", "/subscriptions/" + other.subscription + versionQuery, `{"state":"Deleted"}`, 404},
		{"GET", operation, "", 404},
		// Its own cluster, by the other's kubeconfig, under its own and under another name.
		{"PUT", x.cluster() + versionQuery,
			`{"location":"x","properties":{"kubeconfig":"` + other.kubeconfig + `"}}`, 403},
		{"PUT", strings.Replace(x.cluster(), "Factory", "Second", 1) + versionQuery,
			`{"location":"x","properties":{"kubeconfig":"` + other.kubeconfig + `"}}`, 403},
	}
	for _, caller := range []string{x.who, "object-of-" + x.client} {
		for _, a := range attempts {
			before := w.audited(t, caller)
			r := w.do(a.method, a.url, a.body, i.callerWith(t, w, caller, x.client))
			if text := readAll(t, r.Body); r.StatusCode != a.status {
				t.Errorf("%s: %s %s: status %d, want %d: %s",
					caller, a.method, a.url, r.StatusCode, a.status, text)
			}
			if a.status == 403 && w.audited(t, caller) != before+1 {
				t.Errorf("%s: %s %s is not in the audit log", caller, a.method, a.url)
			}
		}
	}
}

// callerWith returns the header of a caller with an object id and an application.
func (i *issuer) callerWith(t *testing.T, w *world, oid, client string) string {
	c := i.claims(w.clock.Now(), client)
	c["oid"] = oid
	return "Authorization: Bearer " + i.sign(t, "one", c)
}

// audited returns the number of a caller's refused requests in the audit log.
func (w *world) audited(t *testing.T, oid string) int {
	n := 0
	for line := range strings.Lines(w.audit.String()) {
		var entry struct {
			Object string
			Status int
		}
		must(0, json.Unmarshal([]byte(line), &entry))
		if entry.Object == oid && entry.Status == 403 {
			n++
		}
	}
	return n
}
