package front

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/Azure/AKSFlexNode/api/flexnode/sealed"
	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/machinekey/machinekeytest"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// machine is a machine with a key, and the secrets it has received.
type machine struct {
	w    *world
	key  *machinekey.Key
	node string
	said machinekey.Claims
	// ahead is by how much its clock is.
	ahead time.Duration
}

// machineOf makes a machine that claims to be the present node.
func (w *world) machineOf(name string) *machine {
	w.t.Helper()
	return w.machineOfUID(name, w.storedNode(name).UID)
}

func (w *world) machineOfUID(name, uid string) *machine {
	return &machine{w: w, key: machinekey.New(), node: name, said: machinekey.Claims{
		UID: uid, Audience: publicURL, Boot: machinekey.NewBoot(),
	}}
}

// signs returns the header with a token that is bound to a request.
func (m *machine) signs(bound machinekey.Request) string {
	return "Authorization: MachineKey " + m.token(bound)
}

func (m *machine) token(bound machinekey.Request) string {
	c := m.said
	c.Request = bound
	return m.key.Sign(c, m.w.clock.Now().Add(m.ahead))
}

func (m *machine) path(action string) string {
	path, _, _ := strings.Cut(nodeURL(m.node, action), "?")
	return path
}

// binds returns the header with a token for one request.
func (m *machine) binds(method, action, body string) string {
	return m.signs(machinekey.RequestOf(method, m.path(action), []byte(body)))
}

// post sends a signed request, and returns the code of an error.
func (m *machine) post(t testing.TB, status int, action, body string) string {
	t.Helper()
	_, text := m.w.must(status, "POST", nodeURL(m.node, action), body, m.binds("POST", action, body))
	return code(text)
}

func (m *machine) poll(t *testing.T, status int) string {
	t.Helper()
	_, text := m.w.must(status, "GET", nodeURL(m.node), "", m.signs(machinekey.Request{}))
	return code(text)
}

// registers registers its key with the secret of a bundle.
func (m *machine) registers(t testing.TB, status int, secret string) string {
	t.Helper()
	got := m.post(t, status, "/registerKey", `{"enrolmentSecret":"`+secret+`"}`)
	m.w.caughtUp()
	return got
}

// registersAs registers its key with a token of an identity in Azure.
func (m *machine) registersAs(t testing.TB, status int, as string) string {
	t.Helper()
	token := m.token(machinekey.RequestOf("POST", m.path("/registerKey"), nil))
	_, text := m.w.settles(status, "POST", nodeURL(m.node, "/registerKey"),
		`{"machineToken":"`+token+`"}`, as)
	return code(text)
}

// enrolment returns the secret in the bundle of a new URL of a node.
func (w *world) enrolment(t testing.TB, name string, as ...string) string {
	t.Helper()
	renew := nodeURL(name, "/regenerateToken")
	url := reads[api.ConfigURL](w, 200, "POST", renew, "", as...).ConfigURL
	b := reads[api.Bundle](w, 200, "GET", path(url), "")
	if b.EnrolmentSecret == "" {
		t.Fatalf("no enrolment secret in %+v", b)
	}
	w.caughtUp()
	return b.EnrolmentSecret
}

// newMachine returns a world with a node that joins with a bootstrap token, and its machine.
func newMachine(t *testing.T) (*world, *machine) {
	t.Helper()
	w := newEdge(t)
	w.settles(201, "PUT", nodeURL("n"), "{}")
	return w, w.machineOf("n")
}

// enrolled is newMachine with a machine that has registered its key.
func enrolled(t *testing.T) (*world, *machine) {
	t.Helper()
	w, m := newMachine(t)
	m.registers(t, 204, w.enrolment(t, "n"))
	return w, m
}

// joins registers its key with a new secret, and issues it a certificate.
func (m *machine) joins(t *testing.T, certificate string) (secret string) {
	t.Helper()
	secret = m.w.enrolment(t, m.node)
	m.registers(t, 204, secret)
	m.w.issued(certificate, secret)
	return secret
}

func isSecond(w *world) bool {
	return told(w.node(200, "GET", nodeURL("n"), "").Properties.Status, flexnode.SecondMachineSeen)
}

// A machine may do for its own node what an agent may, and nothing else.
func TestMachineIsItsNodeAlone(t *testing.T) {
	w, m := newMachine(t)
	secret := w.enrolment(t, "n")
	equal(t, "before it registers", m.poll(t, 401), "MachineKeyNotRegistered")
	m.registers(t, 204, secret)
	m.registers(t, 204, secret) // the answer was lost
	m.registers(t, 204, "")
	m.poll(t, 200)
	m.post(t, 204, "/reportStatus", `{"agentVersion":"1"}`)
	m.post(t, 400, "/beginChange", `{"configVersion":"x"}`)
	m.post(t, 200, "/refreshCredentials", refreshBody())
	equal(t, "the node was heard of", !w.api.Seen.Last(clusterKey+"/n").IsZero(), true)
	w.settles(201, "PUT", nodeURL("o"), "{}")
	poll := m.signs(machinekey.Request{})
	other := w.machineOf("o")
	other.key = m.key
	equal(t, "as another node", other.poll(t, 401), "MachineKeyNotRegistered")
	other.post(t, 401, "/reportStatus", "{}")
	w.must(401, "GET", nodeURL("o"), "", poll)
	w.must(401, "GET", nodeURL("n"), "", poll, "X-Ms-Flexnode-Uid: "+w.storedNode("o").UID)
	for _, url := range []string{clusterURL, nodesURL, providerURL} {
		w.must(403, "GET", url, "", poll)
	}
	w.must(403, "PUT", nodeURL("n"), "{}", m.binds("PUT", "", "{}"))
	w.must(403, "DELETE", nodeURL("n"), "{}", m.binds("DELETE", "", "{}"))
	m.post(t, 403, "/regenerateToken", "{}")
	m.poll(t, 200)
}

// refreshBody returns a request for the credentials of a node that has joined.
func refreshBody() string { return sealedFor(must(sealed.NewKey()), `,"joined":true`) }

// A token is valid for one request only: its method, path and body.
func TestMachineTokenIsBound(t *testing.T) {
	w, m := enrolled(t)
	const report, body = "/reportStatus", `{"agentVersion":"1"}`
	post := func(status int, body, token string) {
		t.Helper()
		w.must(status, "POST", nodeURL("n", report), body, token)
	}
	post(204, body, m.binds("POST", report, body))
	post(401, body+" ", m.binds("POST", report, body))
	post(401, body, m.binds("PUT", report, body))
	post(401, body, m.binds("POST", "/beginChange", body))
	post(401, body, m.signs(machinekey.Request{}))
	post(401, body, m.signs(machinekey.Request{Method: "POST", Path: m.path(report)}))
	w.must(401, "GET", nodeURL("n"), "", m.binds("POST", report, ""))
	m.said.Audience = "https://other.example"
	equal(t, "for another provider", m.poll(t, 401), "InvalidMachineToken")
	w.must(401, "GET", nodeURL("n"), "", "Authorization: MachineKey nonsense")
	w.must(401, "GET", nodeURL("n"), "", "Authorization: MachineKey")
}

// Another machine is refused and shown, until the owner's new URL makes it the node.
func TestSecondMachine(t *testing.T) {
	w, first := newMachine(t)
	secret := w.enrolment(t, "n")
	first.registers(t, 204, secret)
	second := w.machineOf("n")
	equal(t, "another machine", second.registers(t, 409, secret), "SecondMachine")
	equal(t, "a second machine is shown", isSecond(w), true)
	revision := w.index.Revision()
	second.registers(t, 409, secret)
	equal(t, "the revision after the same machine", w.index.Revision(), revision)
	second.poll(t, 401)
	first.poll(t, 200)
	equal(t, "without a secret", second.registers(t, 401, "x.y"), "EnrolmentFailed")

	fresh := w.enrolment(t, "n")
	first.poll(t, 200) // until its successor has registered
	second.registers(t, 204, fresh)
	equal(t, "a second machine is shown", isSecond(w), false)
	second.poll(t, 200)
	first.poll(t, 401)
	equal(t, "the machine before", first.registers(t, 409, secret), "SecondMachine")
	third := w.machineOf("n")
	equal(t, "a secret that was used", third.registers(t, 409, fresh), "SecondMachine")
}

// A secret that was revoked before a machine has used it enrols none.
func TestEnrolmentIsRevoked(t *testing.T) {
	w, m := newMachine(t)
	old := w.enrolment(t, "n")
	fresh := w.enrolment(t, "n")
	equal(t, "a replaced secret", m.registers(t, 401, old), "EnrolmentFailed")
	w.settles(200, "PUT", nodeURL("n"), `{"properties":{"nodeConfig":{"maxPods":20}}}`)
	m.registers(t, 401, fresh) // the URL is revoked with it
	w.settles(201, "PUT", nodeURL("o"), "{}")
	m.registers(t, 401, w.enrolment(t, "o"))
	shows(t, "it is shown, no machine is the node", "false true", isSecond(w),
		w.storedNode("n").MachineKey == "")
	m.registers(t, 204, w.enrolment(t, "n"))
}

// joins returns a node that joins with an Azure identity, given only by its client id.
func joins(client string) string {
	return `{"properties":{"kubernetesAuth":{"useAzureAuth":true},"azureAuth":{"method":` +
		`"managedIdentity","managedIdentity":{"clientId":"` + client + `"}}}}`
}

// Only the node's machine reports its identity, until the configuration has another one.
func TestMachineTellsItsIdentity(t *testing.T) {
	w, m := newMachine(t)
	w.settles(200, "PUT", nodeURL("n"), joins(clientA))
	m.registers(t, 204, w.enrolment(t, "n"))
	const own, other = "bbbbbbbb-0000-0000-0000-000000000001", "bbbbbbbb-0000-0000-0000-000000000002"
	tells := func(m *machine, status int, principal string) {
		t.Helper()
		m.post(t, status, "/registerKey", `{"principalId":"`+principal+`"}`)
		w.caughtUp()
	}
	tells(m, 204, own)
	tells(w.machineOf("n"), 401, other)
	tells(m, 204, "system:masters")
	equal(t, "the node joins as", w.storedNode("n").PrincipalID(), own)
	w.must(200, "PUT", nodeURL("n"), joins(clientB))
	equal(t, "with another identity it joins as", w.storedNode("n").PrincipalID(), "")
	w.settles(200, "PUT", nodeURL("n"), "{}")
	m.registers(t, 204, w.enrolment(t, "n"))
	tells(m, 204, own)
	equal(t, "with a bootstrap token it joins as", w.storedNode("n").PrincipalID(), "")
}

// The token of the node's identity has its object id: when it registers the machine's key, and when
// it polls before the machine has joined.
func TestTokenTellsIdentity(t *testing.T) {
	for _, name := range []string{"a poll", "a registration"} {
		t.Run(name, func(t *testing.T) {
			w, i, ops := guarded(t)
			w.settles(201, "PUT", nodeURL("n")+"&configUrl=true", joins(clientA), ops)
			w.must(200, "GET", nodeURL("n"), "", ops)
			equal(t, "before it was seen it joins as", w.storedNode("n").PrincipalID(), "")
			const own = "bbbbbbbb-0000-0000-0000-000000000001"
			as := i.bearer(w, clientA, jwt.MapClaims{"oid": own})
			if name == "a poll" {
				w.must(200, "GET", nodeURL("n"), "", as)
			} else {
				w.machineOf("n").registersAs(t, 204, as)
			}
			equal(t, "it joins as", w.storedNode("n").PrincipalID(), own)
		})
	}
}

// A machine that has its configuration without a URL registers with the node's Azure identity,
// which then does not count any more beside the key: many machines may share it.
func TestIdentityRegisters(t *testing.T) {
	w, i, ops := guarded(t)
	w.settles(201, "PUT", nodeURL("n"), nodeOf(clientA, "first"), ops)
	m, mine := w.machineOf("n"), i.app(w, clientA)
	m.registersAs(t, 403, i.app(w, clientB))
	m.registersAs(t, 403, ops)
	elsewhere := m.token(machinekey.RequestOf("POST", "/x", nil))
	w.must(401, "POST", nodeURL("n", "/registerKey"), `{"machineToken":"`+elsewhere+`"}`, mine)
	w.must(200, "GET", nodeURL("n"), "", mine)
	m.registersAs(t, 204, mine)
	m.registersAs(t, 204, mine)
	m.poll(t, 200)
	w.must(403, "GET", nodeURL("n"), "", mine)
	w.must(403, "POST", nodeURL("n", "/reportStatus"), `{}`, mine)
	w.machineOf("n").registersAs(t, 409, mine)
	w.front = w.manager
	through := []string{"x-ms-client-tenant-id: " + tenant, "x-ms-client-app-id: " + clientA}
	w.must(404, "POST", nodeURL("n", "/registerKey"), "{}", through...)
	w.must(200, "GET", nodeURL("n"), "", through...)
}

// The key of a node that was deleted reads its tombstone, and nothing of its successor.
func TestDeletedMachine(t *testing.T) {
	w, m := newMachine(t)
	secret := w.enrolment(t, "n")
	m.registers(t, 204, secret)
	w.settles(200, "DELETE", nodeURL("n"), "")
	for range 2 {
		text := w.buried("GET", nodeURL("n"), "", m.signs(machinekey.Request{}))
		has(t, "its tombstone", text, m.said.UID)
		m.post(t, 404, "/reportStatus", "{}")
		m.post(t, 404, "/refreshCredentials", refreshBody())
		m.registers(t, 401, secret)
		w.settles(201, "PUT", nodeURL("n"), "{}") // a successor, the second time
		n := w.storedNode("n")
		shows(t, "the successor is another", "true true", n.MachineKey == "", n.UID != m.said.UID)
		w.buried("GET", nodeURL("n"), "", m.signs(machinekey.Request{})) // beside the successor
		w.settles(200, "DELETE", nodeURL("n"), "")
	}
	w.machineOfUID("n", m.said.UID).poll(t, 401) // a stranger
}

// A machine with a wrong clock gets a nonce, with which its times do not count; a nonce expires.
func TestMachineWithAnotherClock(t *testing.T) {
	w, m := enrolled(t)
	for _, ahead := range []time.Duration{
		-10 * time.Minute, 10 * time.Minute, 20 * 365 * 24 * time.Hour,
	} {
		m.ahead, m.said.Nonce = ahead, ""
		r, text := w.must(401, "GET", nodeURL("n"), "", m.signs(machinekey.Request{}))
		m.said.Nonce = r.Header.Get(machinekey.NonceHeader)
		if m.said.Nonce == "" || code(text) != "MachineTokenTime" {
			t.Fatalf("%s ahead: %s", ahead, text)
		}
		w.start() // any replica
		m.poll(t, 200)
		token := m.signs(machinekey.Request{})
		w.must(200, "GET", nodeURL("n"), "", token)
		m.post(t, 204, "/reportStatus", "{}")
		w.clock.Pass(machinekey.Lifetime - time.Second)
		w.must(200, "GET", nodeURL("n"), "", token)
		w.clock.Pass(2 * time.Second)
		w.must(401, "GET", nodeURL("n"), "", token)
		equal(t, "with a nonce that has ended", m.poll(t, 401), "MachineTokenTime")
		m.said.Nonce = strings.Repeat("A", len(m.said.Nonce))
		m.poll(t, 401)
	}
}

// A poll's token is verified once, and cached until it expires; then it is removed from the cache
// as others are added.
func TestMachineTokenIsRemembered(t *testing.T) {
	w, m := enrolled(t)
	known := w.front.(*listener).authenticate.(*machines).tokens.known
	token := m.signs(machinekey.Request{})
	for range 3 {
		w.must(200, "GET", nodeURL("n"), "", token)
	}
	equal(t, "the tokens that are known", known.Len(), 1)
	m.post(t, 204, "/reportStatus", "{}")
	equal(t, "the tokens that are known after a report", known.Len(), 1)
	w.clock.Pass(machinekey.Lifetime + time.Minute)
	w.must(401, "GET", nodeURL("n"), "", token)
	for range 30 { // minutes, with a new token each
		m.poll(t, 200)
		w.clock.Pass(time.Minute)
	}
	if most := int(machinekey.Lifetime/time.Minute) + 1; known.Len() > most {
		t.Errorf("%d tokens are known, more than the %d that hold", known.Len(), most)
	}
}

// otherURL is another URL of the provider.
const otherURL = "https://rp.example:8447"

// A machine may only poll at a URL of the provider.
func TestEndpointsOfTheProvider(t *testing.T) {
	w, m := enrolled(t)
	m.said.Audience = otherURL
	m.poll(t, 200)
	for _, url := range []string{"https://elsewhere.example", publicURL + ":8447"} {
		w.refused(400, "InvalidParameter", "PUT", nodeURL("n"),
			`{"properties":{"monitoring":{"endpoint":"`+url+`"}}}`, url, publicURL)
	}
}

// By default a node follows its resource, and polls the provider.
func TestNodesFollowByDefault(t *testing.T) {
	w := newEdge(t)
	for properties, want := range map[string][2]any{
		``:                             {true, publicURL},
		`"continuousMonitoring":null`:  {true, publicURL},
		`"continuousMonitoring":false`: {nil, publicURL},
		`"monitoring":{"endpoint":"` + otherURL + `/"}`: {true, otherURL + "/"},
		`"azureAuth":{"method":"arc"},"monitoring":{"endpoint":"resourceManager"}`: {
			true, "resourceManager"},
	} {
		shown := w.node(201, "PUT", nodeURL("n"), `{"properties":{`+properties+`}}`)
		config := shownConfig(t, shown)
		monitoring := config["agent"].(map[string]any)["monitoring"].(map[string]any)
		equal(t, properties+": the audience", monitoring["audience"], nodeAudience)
		equal(t, properties, [2]any{config["continuousMonitoring"], monitoring["endpoint"]}, want)
		equal(t, properties+": it follows", shown.Properties.ContinuousMonitoring, want[0] == true)
		_, text := w.must(200, "GET", nodeURL("n"), "")
		again, _ := w.must(200, "PUT", nodeURL("n"), text)
		equal(t, properties+": written as it is read", again.Header.Get("ETag"), shown.ETag)
		w.settles(200, "DELETE", nodeURL("n"), "")
	}
}

// kubelets has the certificate of one node.
type kubelets struct {
	node string
	leaf *x509.Certificate
}

func (k kubelets) ProvesKubelet(
	_ context.Context, c flexnode.Cluster, node string, leaf *x509.Certificate,
) error {
	if c.ID == "" || node != k.node || !leaf.Equal(k.leaf) {
		return errors.New("it is of another")
	}
	return nil
}

// registersAsKubelet registers a machine's key with a used secret and the proof of a kubelet.
func (m *machine) registersAsKubelet(t testing.TB, status int, secret string, pair []byte) {
	t.Helper()
	certificate, signature, err := machinekey.SignAsKubelet(pair,
		machinekey.Statement(m.said.UID, m.key.Thumbprint()))
	must(0, err)
	body := must(json.Marshal(api.RegisterKey{EnrolmentSecret: secret,
		Kubelet: &api.KubeletProof{Certificate: certificate, Signature: signature}}))
	m.post(t, status, "/registerKey", string(body))
	m.w.caughtUp()
}

// A restored provider has no key, or a former one: kubelet vouches for the machine that has
// registered since. Before a restore it does not.
func TestRestoredProvider(t *testing.T) {
	ca := machinekeytest.NewCA()
	pair, leaf := ca.Kubelet("n", false)
	stranger, _ := ca.Kubelet("n", false)
	for name, known := range map[string]bool{"no key": false, "a former key": true} {
		t.Run(name, func(t *testing.T) {
			w, m := newMachine(t)
			if known {
				w.machineOf("n").registers(t, 204, w.enrolment(t, "n"))
			}
			w.api.Kubelets = kubelets{"n", leaf}
			m.registersAsKubelet(t, 401, "used.secret", pair)
			w.change(func(v *store.View) error { _, err := w.api.Store.RaiseEpoch(v); return err })
			m.registersAsKubelet(t, 401, "used.secret", stranger)
			m.poll(t, 401)
			m.registersAsKubelet(t, 204, "used.secret", pair)
			m.poll(t, 200)
			has(t, "the audit log", w.audit.String(), "is not proved by its kubelet",
				"is proved by its kubelet")
			w.api.Kubelets = nil // a front that reaches no cluster
			w.machineOf("n").registersAsKubelet(t, 401, "used.secret", pair)
			m.poll(t, 200)
		})
	}
}

// The kubelet of a machine that was replaced or shut out vouches for no key, even after a restore.
func TestRevokedKubelet(t *testing.T) {
	pair, leaf := machinekeytest.NewCA().Kubelet("n", false)
	w, m := newMachine(t)
	m.joins(t, flexnode.CertificateID(leaf.Raw))
	w.api.Kubelets = kubelets{"n", leaf}
	w.change(func(v *store.View) error { _, err := w.api.Store.RaiseEpoch(v); return err })
	next := w.machineOf("n")
	next.registers(t, 204, w.enrolment(t, "n"))
	w.machineOf("n").registersAsKubelet(t, 401, "used.secret", pair)
	next.poll(t, 200)
	w.must(200, "POST", now(nodeURL("n", "/regenerateToken")), "")
	w.caughtUp()
	w.machineOf("n").registersAsKubelet(t, 401, "used.secret", pair)
	equal(t, "the node's key", w.storedNode("n").MachineKey, flexnode.ShutOut)
}

// The same holds for a certificate that the restored store does not have, also while the index is
// behind, before the cluster has the list without it.
func TestUnknownKubelet(t *testing.T) {
	pair, leaf := machinekeytest.NewCA().Kubelet("n", false)
	for name, happens := range map[string]func(*testing.T, *world){
		"replaced a moment ago": func(t *testing.T, w *world) {
			secret := w.enrolment(t, "n")
			w.stop()
			w.machineOf("n").registers(t, 204, secret)
		},
		"shut out": func(_ *testing.T, w *world) {
			w.must(200, "POST", now(nodeURL("n", "/regenerateToken")), "")
			w.caughtUp()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, m := newMachine(t)
			m.registers(t, 204, w.enrolment(t, "n"))
			w.api.Kubelets = kubelets{"n", leaf}
			w.change(func(v *store.View) error { _, err := w.api.Store.RaiseEpoch(v); return err })
			happens(t, w)
			before := w.storedNode("n").MachineKey
			w.machineOf("n").registersAsKubelet(t, 401, "used.secret", pair)
			equal(t, "the node's key", w.storedNode("n").MachineKey, before)
		})
	}
}
