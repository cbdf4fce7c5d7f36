package front

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
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
	i.add("one")
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

func (i *issuer) add(kid string) {
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

func (i *issuer) sign(kid string, c jwt.MapClaims) string {
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, c)
	token.Header["kid"] = kid
	i.mu.Lock()
	defer i.mu.Unlock()
	return must(token.SignedString(i.keys[kid]))
}

// as returns the header of a caller with an object id; the operator has all roles.
func (i *issuer) as(w *world, oid string) string {
	return i.bearer(w, oid, jwt.MapClaims{"oid": oid})
}

// app returns the header of an application.
func (i *issuer) app(w *world, app string) string { return i.bearer(w, app, nil) }

// bearer returns the header of an application whose token has other claims; nil removes one.
func (i *issuer) bearer(w *world, app string, other jwt.MapClaims) string {
	c := i.claims(w.clock.Now(), app)
	maps.Copy(c, other)
	maps.DeleteFunc(c, func(_ string, value any) bool { return value == nil })
	return "Authorization: Bearer " + i.sign("one", c)
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
	return w, i, i.as(w, "operator")
}

func TestRefusedTokens(t *testing.T) {
	w, i, _ := guarded(t)
	now, claims := w.clock.Now(), i.claims(w.clock.Now(), clientA)
	with := func(claim string, value any) string {
		return i.bearer(w, clientA, jwt.MapClaims{claim: value})
	}
	unsigned := must(jwt.NewWithClaims(jwt.SigningMethodNone, claims).
		SignedString(jwt.UnsafeAllowNoneSignatureType))
	der := must(x509.MarshalPKIXPublicKey(&i.keys["one"].PublicKey))
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	confused := jwt.NewWithClaims(jwt.SigningMethodHS256, claims)
	confused.Header["kid"] = "one"
	stranger := &issuer{keys: map[string]*rsa.PrivateKey{}}
	stranger.add("one")
	stranger.add("two")
	good := i.sign("one", claims)
	parts := strings.Split(good, ".")
	payload := base64.RawURLEncoding.EncodeToString([]byte(`{"appid":"` + clientB + `"}`))
	const invalidToken, bearer = "InvalidAuthenticationToken", "Authorization: Bearer "
	for _, tt := range []struct{ name, header, code string }{
		{"none at all", "Accept: */*", "AuthenticationFailed"},
		{"another scheme", "Authorization: Basic dXNlcjpwYXNz", "AuthenticationFailed"},
		{"expired", with("exp", now.Add(-leeway-time.Second).Unix()), "ExpiredAuthenticationToken"},
		{"without expiry", with("exp", nil), invalidToken},
		{"not yet valid", with("nbf", now.Add(leeway+time.Second).Unix()), invalidToken},
		{"for another audience", with("aud", "https://graph.microsoft.com"), invalidToken},
		{"of another issuer", with("iss", "https://evil.example/"), invalidToken},
		{"of another tenant", with("tid", otherTenant), "InvalidAuthenticationTokenTenant"},
		{"without signature", bearer + unsigned, invalidToken},
		{"signed with the public key", bearer + must(confused.SignedString(public)), invalidToken},
		{"signed by a stranger", bearer + stranger.sign("one", claims), invalidToken},
		{"signed with an unknown key", bearer + stranger.sign("two", claims), invalidToken},
		{"with another payload", bearer + parts[0] + "." + payload + "." + parts[2], invalidToken},
		{"cut off", bearer + good[:len(good)-5], invalidToken},
		{"endless", bearer + strings.Repeat("a", 20<<10), invalidToken},
	} {
		r, text := w.must(401, "GET", nodeURL("n"), "", tt.header)
		challenge, _, _ := strings.Cut(r.Header.Get("WWW-Authenticate"), "=")
		shows(t, tt.name, tt.code+" Bearer authorization_uri", code(text), challenge)
	}
	_, text := w.must(403, "GET", nodeURL("n"), "", bearer+good)
	equal(t, "a good token without a role", code(text), "AuthorizationFailed")
	has(t, "the refusal", text, "flexNodeConfig/read")
	w.must(200, "GET", "/providers/"+namespace+"/operations"+versionQuery, "")
	// What has been verified is not verified again, and yet expires.
	w.clock.Pass(time.Hour + leeway + time.Second)
	w.must(401, "GET", nodeURL("n"), "", bearer+good)
	// A new key is found when a token is signed with it.
	i.add("three")
	fresh := i.sign("three", i.claims(w.clock.Now(), clientA))
	w.must(403, "GET", nodeURL("n"), "", bearer+fresh)
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
	w.settles(201, "PUT", nodeURL("c"), `{"properties":{"continuousMonitoring":true,
		"azureAuth":{"method":"arc"},"kubernetesAuth":{"useAzureAuth":true}}}`, ops)
	a := i.app(w, clientA)
	c := i.bearer(w, "arc-app", jwt.MapClaims{"xms_mirid": strings.ToUpper(arcMachine + "c")})

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
		{"GET", nodesURL, "", a},
		{"GET", clusterURL, "", a},
		{"PUT", clusterURL, `{"location":"x"}`, a},
		{"DELETE", clusterURL, "", a},
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
	w.must(200, "GET", nodeURL("a"), "", i.app(w, clientA))
	for name, claims := range map[string]jwt.MapClaims{
		"its namesake in another tenant": {"tid": otherTenant, "iss": i.URL + "/other/"},
		"a person":                       {"idtyp": nil, "scp": "user_impersonation"},
		"a user":                         {"idtyp": "user"},
	} {
		token := i.bearer(w, clientA, claims)
		equal(t, name, w.do("GET", nodeURL("a"), "", token).StatusCode, 403)
	}
}

// Direct callers cannot act as Resource Manager, nor use its listener without its certificate.
func TestSpoofedHeaders(t *testing.T) {
	w, i, ops := guarded(t)
	spoofed := []string{
		i.app(w, clientA), "x-ms-client-object-id: operator",
		"x-ms-client-principal-name: ops@example.com", "x-ms-client-app-id: " + clientB,
		"x-ms-client-tenant-id: " + tenant, "x-ms-arm-resource-system-data: {}",
		"x-ms-identity-url: https://evil.example", "Referer: https://evil.example" + nodeURL("n"),
	}
	w.must(403, "GET", nodeURL("n"), "", spoofed...)

	w.must(201, "PUT", nodeURL("a"), `{"properties":{}}`, ops)
	w.settles(201, "PUT", nodeURL("b"), `{"properties":{}}`, ops)
	_, text := w.must(200, "GET", nodesURL+"&$top=1", "", ops,
		"Referer: https://evil.example"+cluster+"/flexNodeConfig", "Host: evil.example")
	lacks(t, "a list", text, "evil.example")

	// Only Resource Manager may set the state of a subscription, whatever a caller's roles (M15).
	w.must(400, "PUT", subscriptionURL, `{"state":"Deleted"}`, ops) // no route has this version
	there := "/subscriptions/" + subscription + versionQuery
	_, text = w.must(404, "PUT", there, `{"state":"Deleted"}`, ops)
	equal(t, "the refusal", code(text), "NotFound")
	w.must(200, "GET", nodeURL("a"), "", ops)

	w.front = w.api.BehindARM(ManagerCertificate{"arm.example"})
	_, text = w.must(403, "GET", nodeURL("a"), "", spoofed...)
	equal(t, "without a client certificate", code(text), "ClientCertificateNotTrusted")
}

// Strangers cannot fill the audit log; refused callers with an identity are in it.
func TestAuditOfStrangers(t *testing.T) {
	w, i, _ := guarded(t)
	before := w.audit.String()
	for _, method := range []string{"GET", "PUT", "DELETE", strings.Repeat("M", 8_000)} {
		w.must(401, method, nodeURL("n"), "")
	}
	equal(t, "the audit log", w.audit.String(), before)
	w.must(405, strings.Repeat("M", 8_000), nodeURL("n"), "", i.app(w, clientB))
	got := w.audit.String()[len(before):]
	shows(t, "its lines, and that it is short", "1 true", strings.Count(got, "\n"), len(got) <= 1_500)
	has(t, "the audit log", got, `"method":"`+strings.Repeat("M", auditedMethod)+`..."`)
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
	shows(t, "the node", "N app-of-a-pipeline Application", n.Name, n.SystemData.CreatedBy,
		n.SystemData.CreatedByType)
	has(t, "its id", n.ID, "EDGE")
	w.settles(201, "PUT", nodeURL("m"), `{"properties":{}}`,
		append(headers, "Referer: https://management.example/elsewhere")...)
	_, text := w.must(200, "GET", nodesURL+"&$top=1", "",
		append(headers, "Referer: https://management.example"+nodesURL+"&$top=1&$filter=x")...)
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
		equal(t, fmt.Sprintf("with another character %d", i), last("a", string(bent)), "")
	}
}

// team is a team with a subscription of its own, in which it may do everything.
type team struct {
	subscription, kubeconfig, who, client string
}

// own returns a URL in the team's subscription.
func (t team) own(url string) string {
	return strings.Replace(url, subscription, t.subscription, 1)
}

func (t team) node(more ...string) string { return t.own(nodeURL("n", more...)) }

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
	w.api.Kubeconfigs, w.api.Authorizer = bound, Assignments{
		{a.who, "/subscriptions/" + a.subscription, []string{"*"}},
		{b.who, "/subscriptions/" + b.subscription, []string{"*"}},
	}
	for _, x := range []team{a, b} {
		bound[strings.ToLower(x.own(cluster))] = x.kubeconfig
		w.arrive(t, i, x)
	}
	w.caughtUp()
	for _, x := range [][2]team{{a, b}, {b, a}} {
		w.trespass(t, i, x[0], x[1])
	}
	for _, x := range []team{a, b} {
		who := i.as(w, x.who)
		n := w.node(200, "GET", x.node(), "", who)
		equal(t, "what is left of the node of "+x.who, n.Properties.ProvisioningState, "Succeeded")
		w.must(200, "POST", x.node("/listConfigUrl"), "{}", who)
	}
}

// arrive registers a team's cluster and makes a node.
func (w *world) arrive(t *testing.T, i *issuer, x team) {
	t.Helper()
	who := i.as(w, x.who)
	w.must(200, "POST", x.own(registerURL), "", who)
	w.must(201, "PUT", x.own(clusterURL), registration(`"kubeconfig":"`+x.kubeconfig+`"`), who)
	w.must(201, "PUT", x.node()+"&configUrl=true", nodeOf(x.client, "secret-of-"+x.who), who)
}

// trespass tries everything on another team's resources, as a team and as one of its nodes.
func (w *world) trespass(t *testing.T, i *issuer, x, other team) {
	t.Helper()
	own, clusterURL, body := x.own(clusterURL), other.own(clusterURL), nodeOf(x.client, "mine")
	stolen := registration(`"kubeconfig":"` + other.kubeconfig + `"`)
	operation := other.own(operationURL("00000000-0000-0000-0000-000000000001"))
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
		{"GET", other.own(nodesURL), "", 403},
		{"GET", clusterURL, "", 403},
		{"PUT", clusterURL, registration(`"kubeconfig":"` + x.kubeconfig + `"`), 403},
		{"DELETE", clusterURL + "&nodes=wipe", "", 403},
		{"DELETE", clusterURL + "&nodes=wipe&dryRun=true", "", 403},
		{"GET", other.own(ownProvider + "/managedClusters" + versionQuery), "", 403},
		{"POST", other.own(registerURL), "", 403},
		{"PUT", "/subscriptions/" + other.subscription + versionQuery, `{"state":"Deleted"}`, 404},
		{"GET", operation, "", 404},
		// Its own cluster, by the other's kubeconfig, under its own and under another name.
		{"PUT", own, stolen, 403},
		{"PUT", strings.Replace(own, "Factory", "Second", 1), stolen, 403},
	}
	for _, caller := range []string{x.who, "object-of-" + x.client} {
		for _, a := range attempts {
			before, want := w.audited(t, caller), map[int]int{403: 1, 404: 0}[a.status]
			w.must(a.status, a.method, a.url, a.body, i.bearer(w, x.client, jwt.MapClaims{"oid": caller}))
			equal(t, "entries of "+a.method+" "+a.url, w.audited(t, caller)-before, want)
		}
	}
}

// audited returns the number of a caller's refused requests in the audit log.
func (w *world) audited(t *testing.T, oid string) (n int) {
	type entry struct {
		Object string
		Status int
	}
	for line := range strings.Lines(w.audit.String()) {
		if decoded[entry](t, line) == (entry{oid, 403}) {
			n++
		}
	}
	return n
}
