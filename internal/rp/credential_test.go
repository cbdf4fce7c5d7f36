package rp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
	store "github.com/Azure/AKSFlexNode/internal/rp/oldstore"
)

const withToken = `{"properties":{"nodeConfig":{"maxPods":40}}}`

// token reads the bootstrap token out of a bundle.
func token(t *testing.T, bundle string) string {
	t.Helper()
	c, _, err := config.Parse([]byte(bundle), config.Host{HostName: "x", Arch: "amd64"})
	if err != nil {
		t.Fatalf("the agent does not take the bundle: %v\n%s", err, bundle)
	}
	return c.Azure.BootstrapToken.Token.Reveal()
}

// newKey is a machine's private key.
func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
}

// csr is what kubelet asks with a token.
func csr(t *testing.T, name, tokenID, node string, key *ecdsa.PrivateKey) *certificates.CertificateSigningRequest {
	t.Helper()
	der := must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}, key))
	return &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificates.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: certificates.KubeAPIServerClientKubeletSignerName,
			Username: "system:bootstrap:" + tokenID, Groups: []string{"system:bootstrappers", TokenGroup, "system:authenticated"},
			Usages: []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageClientAuth},
		},
	}
}

// ask files a request in the cluster and has it reviewed; the decision is Approved, Denied or "".
func (w *world) ask(c *certificates.CertificateSigningRequest) string {
	w.t.Helper()
	ctx := w.t.Context()
	client := w.cluster.CertificatesV1().CertificateSigningRequests()
	if _, err := client.Create(ctx, c, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	return w.review(c.Name)
}

func (w *world) review(name string) string {
	w.t.Helper()
	ctx := w.t.Context()
	client := w.cluster.CertificatesV1().CertificateSigningRequests()
	c := must(client.Get(ctx, name, metav1.GetOptions{}))
	target := must(w.cluster.Target(ctx, store.Cluster{}))
	if err := w.server.review(ctx, target, clusterKey, c); err != nil {
		w.t.Fatal(err)
	}
	answered := must(client.Get(ctx, name, metav1.GetOptions{}))
	for _, condition := range answered.Status.Conditions {
		return string(condition.Type)
	}
	return ""
}

// issue has the certificate be there, as kube-controller-manager does.
func (w *world) issue(name string) {
	w.t.Helper()
	ctx := w.t.Context()
	client := w.cluster.CertificatesV1().CertificateSigningRequests()
	c := must(client.Get(ctx, name, metav1.GetOptions{}))
	c.Status.Certificate = []byte("a certificate")
	must(client.UpdateStatus(ctx, c, metav1.UpdateOptions{}))
	w.review(name)
}

// PUT, bundle, join: the token is consumed, the URL dies, the Secret goes, and nobody else gets in.
func TestATokenIsGoodForOneMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	_, text := w.must(201, "PUT", nodeURL("Edge-1")+"&configUrl=true", withToken)
	n := shownNode(t, text)
	if n.Properties.ProvisioningState != api.Succeeded || n.Properties.ConfigURL == "" {
		t.Fatalf("%s", text)
	}
	_, text = w.must(200, "POST", nodeURL("edge-1", "/listConfigUrl"), "{}")
	var listed api.ConfigURL
	if err := json.Unmarshal([]byte(text), &listed); err != nil || listed.ConfigURL != n.Properties.ConfigURL || listed.ConfigVersion != n.Properties.ConfigVersion {
		t.Errorf("listConfigUrl: %s", text)
	}
	url := path(n.Properties.ConfigURL)
	r, bundle := w.must(200, "GET", url, "")
	if r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers of a bundle: %v", r.Header)
	}
	w.must(200, "GET", url, "") // a machine that crashed before it joined asks again
	id := token(t, bundle)[:6]
	secrets := w.cluster.secrets(t)
	if len(secrets) != 1 || secrets[0].Name != "bootstrap-token-"+id || secrets[0].Type != "bootstrap.kubernetes.io/token" || string(secrets[0].Data["auth-extra-groups"]) != TokenGroup ||
		string(secrets[0].Data["expiration"]) != w.clock.now().Add(24*time.Hour).UTC().Format(time.RFC3339) || token(t, bundle) != id+"."+string(secrets[0].Data["token-secret"]) {
		t.Fatalf("secrets: %+v", secrets)
	}

	mine, theirs := newKey(t), newKey(t)
	if got := w.ask(csr(t, "other-node", id, "edge-2", mine)); got != "Denied" {
		t.Errorf("a request for another node's name: %q", got)
	}
	w.must(200, "GET", url, "") // which did not consume it
	if got := w.ask(csr(t, "first", id, "edge-1", mine)); got != "Approved" {
		t.Errorf("the first request: %q", got)
	}
	w.must(403, "GET", url, "")
	if got := w.ask(csr(t, "again", id, "edge-1", mine)); got != "Approved" {
		t.Errorf("the same machine again: %q", got)
	}
	if got := w.ask(csr(t, "thief", id, "edge-1", theirs)); got != "Denied" {
		t.Errorf("another machine with the token: %q", got)
	}
	w.must(409, "POST", nodeURL("edge-1", "/listConfigUrl"), "{}")
	if len(w.cluster.secrets(t)) != 1 {
		t.Error("the Secret went before the certificate was there")
	}
	w.issue("first")
	w.sweep()
	if len(w.cluster.secrets(t)) != 1 {
		t.Error("the Secret went without grace")
	}
	w.clock.pass(grace)
	w.sweep()
	if left := w.cluster.secrets(t); len(left) != 0 {
		t.Errorf("the Secret is still there: %v", left)
	}
	if rows := must(w.server.Store.Credentials.List(t.Context(), "")); len(rows) != 0 {
		t.Errorf("rows are left: %v", rows)
	}
	if got := w.ask(csr(t, "late", id, "edge-1", theirs)); got != "Denied" {
		t.Errorf("a request with a token that is gone: %q", got)
	}

	// The join failed all the same: a new token.
	_, text = w.must(200, "POST", nodeURL("edge-1", "/regenerateToken"), "{}")
	var fresh api.ConfigURL
	if err := json.Unmarshal([]byte(text), &fresh); err != nil || fresh.ConfigURL == n.Properties.ConfigURL || fresh.ConfigVersion != n.Properties.ConfigVersion {
		t.Errorf("regenerateToken: %s", text)
	}
	_, bundle = w.must(200, "GET", path(fresh.ConfigURL), "")
	if got := w.ask(csr(t, "second-life", token(t, bundle)[:6], "edge-1", theirs)); got != "Approved" {
		t.Errorf("with the new token: %q", got)
	}
	// DELETE while a machine is joining.
	w.must(200, "DELETE", nodeURL("edge-1"), "")
	if left := w.cluster.secrets(t); len(left) != 0 {
		t.Errorf("a deleted node has a Secret: %v", left)
	}
	w.must(403, "GET", path(fresh.ConfigURL), "")
	if strings.Contains(w.audit.String(), token(t, bundle)) {
		t.Error("the token is in the audit log")
	}
}

// A URL is dead for each reason alone, and says nothing of which.
func TestDeadURLs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	_, text := w.must(201, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	url := path(shownNode(t, text).Properties.ConfigURL)
	_, alive := w.must(200, "GET", url, "")
	_, dead := w.must(403, "GET", bundlePath+"x.json", "")
	bare, query, _ := strings.Cut(url, "?")
	spoil := func(name, to string) string {
		parts := strings.Split(query, "&")
		for i, p := range parts {
			if strings.HasPrefix(p, name+"=") {
				parts[i] = name + "=" + to
			}
		}
		return bare + "?" + strings.Join(parts, "&")
	}
	bad := []string{
		bare, spoil("sv", "2018-11-09"), spoil("se", "2036-05-02T12%3A00%3A00Z"), spoil("sp", "rw"), spoil("sr", "c"), spoil("spr", "http"), spoil("sig", "AAAA"), spoil("sig", ""),
		url + "&sip=1.2.3.4", url + "&sp=r", strings.Replace(url, "/configs/", "/configs//", 1), bundlePath + strings.ToUpper(strings.TrimPrefix(bare, bundlePath)) + "?" + query, bare + "x?" + query,
	}
	for i := range len(query) { // every character of the query
		bent := []byte(query)
		bent[i] = map[bool]byte{true: 'B', false: 'A'}[bent[i] == 'A']
		bad = append(bad, bare+"?"+string(bent))
	}
	for _, u := range bad {
		r := w.do("GET", u, "")
		if got := readAll(t, r.Body); r.StatusCode != 403 || got != dead {
			t.Errorf("%s: %d %s", u, r.StatusCode, got)
		}
	}
	if _, got := w.must(200, "GET", url, ""); got != alive {
		t.Error("the URL gives out something else the second time")
	}
	w.clock.pass(lifetime)
	if _, got := w.must(403, "GET", url, ""); got != dead {
		t.Errorf("an expired URL: %s", got)
	}
	w.sweep()
	if left := w.cluster.secrets(t); len(left) != 0 {
		t.Errorf("an expired token is still there: %v", left)
	}
	_, text = w.must(200, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	url = path(shownNode(t, text).Properties.ConfigURL)
	w.must(200, "PUT", nodeURL("n"), withToken)
	if _, got := w.must(403, "GET", url, ""); got != dead {
		t.Errorf("a replaced URL: %s", got)
	}
	w.must(405, "PUT", url, "{}")
}

// A PUT is accepted while the cluster is down, says so, and is finished when the cluster is back.
func TestClusterIsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cluster.down.Store(true)
	w.register("")
	_, text := w.must(201, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	if p := shownNode(t, text).Properties; p.ProvisioningState != api.Creating || p.ConfigURL != "" || p.Config != nil {
		t.Errorf("with a cluster that was never reached: %s", text)
	}
	_, text = w.must(409, "POST", nodeURL("n", "/listConfigUrl"), "")
	if code(text) != "NoConfigUrl" {
		t.Error(text)
	}
	w.sweep()
	w.cluster.down.Store(false)
	if err := w.server.probe(t.Context(), clusterKey); err != nil {
		t.Fatal(err)
	}
	w.sweep()
	w.sweep()
	_, text = w.must(200, "GET", nodeURL("n"), "")
	if p := shownNode(t, text).Properties; p.ProvisioningState != api.Succeeded || p.Config == nil {
		t.Errorf("after the cluster is back: %s", text)
	}
	_, text = w.must(200, "POST", nodeURL("n", "/listConfigUrl"), "")
	var u api.ConfigURL
	if err := json.Unmarshal([]byte(text), &u); err != nil {
		t.Fatal(err)
	}
	_, bundle := w.must(200, "GET", path(u.ConfigURL), "")
	if c, _, err := config.Parse([]byte(bundle), config.Host{HostName: "x", Arch: "amd64"}); err != nil || c.Kubernetes.Version != "1.35.4" {
		t.Errorf("the bundle: %v, Kubernetes %s", err, c.Kubernetes.Version)
	}

	w.cluster.down.Store(true)
	w.must(200, "DELETE", nodeURL("n"), "")
	w.must(403, "GET", path(u.ConfigURL), "")
	w.cluster.down.Store(false)
	w.sweep()
	if left := w.cluster.secrets(t); len(left) != 0 {
		t.Errorf("a deleted node's token is still there: %v", left)
	}
}

// A version that turns out to be too new fails the node, and says why.
func TestVersionTooNewIsFoundLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cluster.down.Store(true)
	w.register("")
	w.must(201, "PUT", nodeURL("n"), `{"properties":{"versions":{"kubernetes":"1.36.1"}}}`)
	w.cluster.down.Store(false)
	if err := w.server.probe(t.Context(), clusterKey); err != nil {
		t.Fatal(err)
	}
	w.sweep()
	w.settled()
	_, text := w.must(200, "GET", nodeURL("n"), "")
	if p := shownNode(t, text).Properties; p.ProvisioningState != api.Failed || !strings.Contains(text, "newer than the cluster") {
		t.Errorf("%s", text)
	}
}

// New facts of a cluster reach every node, as another version.
func TestNewFactsAreANewVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	_, text := w.must(201, "PUT", nodeURL("n"), withToken)
	before := shownNode(t, text)
	w.must(200, "PUT", cluster+versionQuery, `{"location":"westeurope","properties":{"serverUrl":"https://moved.example"}}`)
	w.sweep()
	_, text = w.must(200, "GET", nodeURL("n"), "")
	after := shownNode(t, text)
	if after.Properties.ConfigVersion <= before.Properties.ConfigVersion || !strings.Contains(text, "https://moved.example") {
		t.Errorf("%s", text)
	}
}

// Killed after each thing that is done for good: the next replica finishes. No Secret without a row, no URL without a row, nothing lost
// that was acknowledged.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	for _, story := range []struct {
		name string
		// before is acknowledged; during may be cut short.
		before, during func(*world) *http.Response
		exists         bool // after during, if it was acknowledged
	}{
		{"create", nil, func(w *world) *http.Response { return w.do("PUT", nodeURL("n")+"&configUrl=true", withToken) }, true},
		{"replace", func(w *world) *http.Response { return w.do("PUT", nodeURL("n")+"&configUrl=true", withToken) },
			func(w *world) *http.Response { return w.do("PUT", nodeURL("n")+"&configUrl=true", `{"properties":{}}`) }, true},
		{"regenerate", func(w *world) *http.Response { return w.do("PUT", nodeURL("n")+"&configUrl=true", withToken) },
			func(w *world) *http.Response { return w.do("POST", nodeURL("n", "/regenerateToken"), "{}") }, true},
		{"delete", func(w *world) *http.Response { return w.do("PUT", nodeURL("n")+"&configUrl=true", withToken) },
			func(w *world) *http.Response { return w.do("DELETE", nodeURL("n"), "") }, false},
	} {
		points := killedAt(t, 0, story.before, story.during, story.exists)
		if points < 4 {
			t.Errorf("%s does %d things only", story.name, points)
		}
		for n := 1; n <= points; n++ {
			t.Run(fmt.Sprintf("%s/%d", story.name, n), func(t *testing.T) {
				t.Parallel()
				killedAt(t, n, story.before, story.during, story.exists)
			})
		}
	}
}

// killedAt runs a story with a provider that dies after the n-th thing; never for 0. It returns how many things were done.
func killedAt(t *testing.T, n int, before, during func(*world) *http.Response, exists bool) int {
	t.Helper()
	w := newWorld(t)
	w.register("")
	var urls []string
	remember := func(r *http.Response) {
		var answer struct {
			ConfigURL  string
			Properties struct{ ConfigURL string }
		}
		if json.Unmarshal([]byte(readAll(t, r.Body)), &answer) == nil {
			urls = append(urls, answer.ConfigURL+answer.Properties.ConfigURL)
		}
	}
	if before != nil {
		remember(before(w))
	}
	w.settled()
	did := 0
	w.server.Did = func(what string) {
		if did++; did == n {
			t.Logf("killed after: %s", what)
		}
		if n > 0 && did >= n {
			panic(http.ErrAbortHandler)
		}
	}
	acknowledged := func() (ok bool) {
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				panic(p)
			}
		}()
		r := during(w)
		remember(r)
		return r.StatusCode < 300
	}()
	if n > 0 {
		w.start(w.server.Store, w.server.Keys) // the next replica
	} else if !acknowledged {
		t.Fatal("the story failed although nobody was killed")
	}
	for range 4 {
		w.sweep()
	}
	w.consistent(urls)
	response := w.do("GET", nodeURL("n"), "")
	if acknowledged && (response.StatusCode == 200) != exists {
		t.Errorf("after an acknowledged story GET says %d", response.StatusCode)
	}
	if response.StatusCode == 200 {
		if p := shownNode(t, readAll(t, response.Body)).Properties; p.ProvisioningState != api.Succeeded {
			t.Errorf("the node stays %s", p.ProvisioningState)
		}
	}
	return did
}

// consistent checks that cluster, store and URLs agree.
func (w *world) consistent(urls []string) {
	w.t.Helper()
	ctx := w.t.Context()
	credentials := must(w.server.Store.Credentials.List(ctx, ""))
	var tokens, bundles []string
	for _, c := range credentials {
		node := must(w.server.Store.Nodes.Get(ctx, c.Value.Node))
		if c.Value.State != store.Live || node.Value.Credential != c.Key {
			w.t.Errorf("a credential is left %s; its node has %q", c.Value.State, node.Value.Credential)
		}
		tokens, bundles = append(tokens, "bootstrap-token-"+c.Value.TokenID), append(bundles, c.Key)
	}
	for _, s := range w.cluster.secrets(w.t) {
		if !slices.Contains(tokens, s.Name) {
			w.t.Errorf("the Secret %s has no row", s.Name)
		}
	}
	if got := len(w.cluster.secrets(w.t)); got != len(tokens) {
		w.t.Errorf("%d Secrets for %d credentials", got, len(tokens))
	}
	for _, b := range must(w.server.Store.Bundles.List(ctx, "")) {
		if !slices.Contains(bundles, b.Key) {
			w.t.Errorf("the bundle %s has no row", b.Key)
		}
	}
	if got := len(must(w.server.Store.Tokens.List(ctx, ""))); got != len(tokens) {
		w.t.Errorf("%d tokens are remembered for %d credentials", got, len(tokens))
	}
	for _, u := range urls {
		if u == "" {
			continue
		}
		r := w.do("GET", path(u), "")
		live := slices.ContainsFunc(bundles, func(key string) bool { return strings.Contains(u, key) })
		if (r.StatusCode == 200) != live {
			w.t.Errorf("a URL says %d; live is %v", r.StatusCode, live)
		}
	}
}

// The whole table of a credential's states and what can be true of it.
func TestDue(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, state := range []string{store.Pending, store.Live, store.Consumed, store.Revoking} {
		for _, wanted := range []bool{true, false} {
			for _, expired := range []bool{true, false} {
				for _, issued := range []string{"no", "just", "long ago"} {
					for _, old := range []bool{true, false} {
						c := store.Credential{State: state, Since: now.Add(-time.Second), Expires: now.Add(time.Hour)}
						if expired {
							c.Expires = now
						}
						if old {
							c.Since = now.Add(-joining)
						}
						when := map[string]time.Time{"just": now.Add(-time.Second), "long ago": now.Add(-grace)}[issued]
						if issued != "no" {
							c.Issued = &when
						}
						want := state
						switch state {
						case store.Pending, store.Live:
							if !wanted || expired {
								want = store.Revoking
							}
						case store.Consumed:
							if expired || old || issued == "long ago" {
								want = store.Revoking
							}
						}
						if got := due(c, wanted, now); got != want {
							t.Errorf("%s wanted=%v expired=%v issued=%s old=%v: %s, want %s", state, wanted, expired, issued, old, got, want)
						}
					}
				}
			}
		}
	}
}

// Each state of a credential by each request: only the first of the right machine for the right node, and that machine again.
func TestDecide(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		for _, state := range []string{store.Pending, store.Live, store.Consumed, store.Revoking} {
			for _, node := range []string{"n", "other", ""} {
				for _, key := range []string{"first", "second"} {
					for _, flaw := range []string{"", "it has alternative names"} {
						c := store.Credential{Node: "s/g/c/n", State: state}
						if state == store.Consumed {
							c.KeyHash = "first"
						}
						approved, why := decide(application{node: node, keyHash: key, flaw: flaw}, c, known)
						want := known && flaw == "" && node == "n" && (state == store.Live || state == store.Consumed && key == "first")
						if approved != want || approved != (why == "") {
							t.Errorf("known=%v %s node=%q key=%s flaw=%q: %v %q", known, state, node, key, flaw, approved, why)
						}
					}
				}
			}
		}
	}
}

// Requests that are no good, whoever has signed them.
func TestFlaws(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	good := func() *certificates.CertificateSigningRequest { return csr(t, "x", "abcdef", "n", key) }
	request := func(template x509.CertificateRequest) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: must(x509.CreateCertificateRequest(rand.Reader, &template, key))})
	}
	name := pkix.Name{CommonName: "system:node:n", Organization: []string{"system:nodes"}}
	tests := map[string]func(*certificates.CertificateSigningRequest){
		"no request": func(c *certificates.CertificateSigningRequest) { c.Spec.Request = []byte("x") },
		"an admin": func(c *certificates.CertificateSigningRequest) {
			c.Spec.Request = request(x509.CertificateRequest{Subject: pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}})
		},
		"masters too": func(c *certificates.CertificateSigningRequest) {
			c.Spec.Request = request(x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n", Organization: []string{"system:nodes", "system:masters"}}})
		},
		"other names": func(c *certificates.CertificateSigningRequest) {
			c.Spec.Request = request(x509.CertificateRequest{Subject: name, DNSNames: []string{"x"}})
		},
		"server usage": func(c *certificates.CertificateSigningRequest) {
			c.Spec.Usages = append(c.Spec.Usages, certificates.UsageServerAuth)
		},
		"no client auth": func(c *certificates.CertificateSigningRequest) { c.Spec.Usages = c.Spec.Usages[:1] },
	}
	for what, spoil := range tests {
		c := good()
		spoil(c)
		if a := readCSR(c); a.flaw == "" {
			t.Errorf("%s: no flaw found", what)
		}
	}
	if a := readCSR(good()); a.flaw != "" || a.node != "n" || a.tokenID != "abcdef" {
		t.Errorf("a good one: %+v", a)
	}
}

// Somebody else's token has the id that was drawn: theirs stays, ours gets another.
func TestTokenIDIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	w.cluster.down.Store(true)
	w.must(201, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	row := must(w.server.Store.Credentials.List(t.Context(), ""))[0]
	w.cluster.down.Store(false)
	taken := "bootstrap-token-" + row.Value.TokenID
	must(w.cluster.CoreV1().Secrets("kube-system").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: taken, Namespace: "kube-system"}}, metav1.CreateOptions{}))
	if err := w.server.advance(context.Background(), row.Key); err != nil {
		t.Fatal(err)
	}
	if got := must(w.server.Store.Credentials.Get(t.Context(), row.Key)); got.Value.State != store.Live || got.Value.TokenID == row.Value.TokenID {
		t.Errorf("%+v", got)
	}
	w.must(200, "DELETE", nodeURL("n"), "")
	if left := w.cluster.secrets(t); len(left) != 1 || left[0].Name != taken {
		t.Errorf("secrets: %v", left)
	}
}

// What a restored backup does not know of is taken out of the cluster.
func TestOrphans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("")
	w.must(201, "PUT", nodeURL("n")+"&configUrl=true", withToken)
	must(w.cluster.CoreV1().Secrets("kube-system").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-orphan", Namespace: "kube-system",
		Labels: map[string]string{providerLabel: "flexnode-rp", ownerLabel: "00000000-0000-0000-0000-000000000000"}}}, metav1.CreateOptions{}))
	must(w.cluster.CoreV1().Secrets("kube-system").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-theirs", Namespace: "kube-system"}}, metav1.CreateOptions{}))
	w.clock.pass(time.Hour)
	if err := w.server.sweepOrphans(t.Context(), clusterKey); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range w.cluster.secrets(t) {
		names = append(names, s.Name)
	}
	if len(names) != 2 || slices.Contains(names, "bootstrap-token-orphan") {
		t.Errorf("left are %v", names)
	}
}
