package front

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
)

// Who has a bundle that no machine has registered with is the node, until the owner sees that the
// right machine was refused and makes another URL: then key and certificate of the thief end.
func TestStolenBundle(t *testing.T) {
	w, right := newMachine(t)
	secret := w.enrolment(t, "n")
	thief := w.machineOf("n")
	thief.registers(t, 204, secret)
	thief.poll(t, 200)
	thief.post(t, 200, "/refreshCredentials", refreshBody())
	w.issued("thief", secret)
	if got := right.registers(t, 409, secret); got != "SecondMachine" || !isSecond(w) {
		t.Errorf("the right machine: %s, shown %v", got, isSecond(w))
	}
	fresh := w.enrolment(t, "n")
	right.registers(t, 204, fresh)
	w.issued("right", fresh)
	thief.poll(t, 401)
	thief.post(t, 401, "/refreshCredentials", refreshBody())
	thief.post(t, 401, "/leave", "{}")
	thief.registers(t, 409, fresh)
	if may := w.listed(0); may != "right" {
		t.Errorf("%q may write as the Node", may)
	}
}

// Who has a configuration URL gets the bundle, until the URL is replaced, the node is deleted, or a
// day has passed.
func TestStolenURL(t *testing.T) {
	ends := map[string]func(*world){
		"a new URL": func(w *world) { w.enrolment(t, "n") },
		"a change": func(w *world) {
			w.must(200, "PUT", nodeURL("n"), `{"properties":{"nodeConfig":{"maxPods":20}}}`)
		},
		"a deletion": func(w *world) { w.must(200, "DELETE", nodeURL("n"), "") },
		"the end of its day": func(w *world) {
			w.clock.Pass(24 * time.Hour)
			w.until("the secret to end", func() bool { return w.storedNode("n").Enrolment == "" })
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			w, _ := newMachine(t)
			_, text := w.must(200, "POST", nodeURL("n", "/regenerateToken"), "")
			url := path(decoded[api.ConfigURL](t, text).ConfigURL)
			_, text = w.must(200, "GET", url, "")
			secret := decoded[api.Bundle](t, text).EnrolmentSecret
			w.must(403, "GET", strings.Replace(url, "sig=", "sig=x", 1), "")
			end(w)
			w.caughtUp()
			if _, text := w.must(403, "GET", url, ""); strings.Contains(text, secret) {
				t.Errorf("the refusal is %s", text)
			}
			if name != "a deletion" {
				w.machineOf("n").registers(t, 401, secret)
			}
		})
	}
}

// Who has the token of a poll reads the configuration of the node without its secrets, and does
// nothing else, for five minutes.
func TestStolenToken(t *testing.T) {
	const clientSecret = "correct-horse-battery"
	w, m := newMachine(t)
	w.must(200, "PUT", nodeURL("n"), nodeOf(clientA, clientSecret))
	w.caughtUp()
	m.registers(t, 204, w.enrolment(t, "n"))
	token := m.signs(machinekey.Request{})
	_, text := w.must(200, "GET", nodeURL("n"), "", token)
	if strings.Contains(text, clientSecret) || !strings.Contains(text, clientA) {
		t.Errorf("the token reads %s", text)
	}
	for _, action := range []string{"/reportStatus", "/beginChange", "/refreshCredentials",
		"/registerKey", "/leave", "/regenerateToken", "/listConfigUrl"} {
		w.must(401, "POST", nodeURL("n", action), "{}", token)
	}
	w.must(401, "PUT", nodeURL("n"), "{}", token)
	w.must(401, "DELETE", nodeURL("n"), "", token)
	w.clock.Pass(machinekey.Lifetime + time.Minute)
	w.must(401, "GET", nodeURL("n"), "", token)
}

// Who reads the rows of a node, in the store or in a backup, has no secret by which to be the node:
// they are sealed with the keys, or stored nowhere.
func TestRowsHaveNoSecret(t *testing.T) {
	w := newEdge(t)
	const clientSecret = "correct-horse-battery"
	w.must(201, "PUT", nodeURL("n"), `{"properties":{"azureAuth":{"method":"servicePrincipal",
		"servicePrincipal":{"clientId":"`+clientA+`","clientSecret":"`+clientSecret+`"}}}}`)
	w.caughtUp()
	_, text := w.must(200, "POST", nodeURL("n", "/regenerateToken"), "")
	url := decoded[api.ConfigURL](t, text).ConfigURL
	_, text = w.must(200, "GET", strings.TrimPrefix(url, publicURL), "")
	bundle := decoded[api.Bundle](t, text)
	if !strings.Contains(text, clientSecret) || bundle.EnrolmentSecret == "" {
		t.Fatalf("the bundle has no secrets: %s", text)
	}
	m := w.machineOf("n")
	m.registers(t, 204, bundle.EnrolmentSecret)
	credentials, _, err := w.api.Store.Credentials.List(t.Context(), "")
	if err != nil || len(credentials) == 0 {
		t.Fatalf("no credential: %v", err)
	}
	secrets, _, err := w.api.Store.Secrets.List(t.Context(), "")
	if err != nil || len(secrets) == 0 {
		t.Fatalf("no sealed secret: %v", err)
	}
	rows := string(must(json.Marshal([]any{w.storedNode("n"), credentials, secrets})))
	_, mac, _ := strings.Cut(bundle.EnrolmentSecret, ".")
	_, signature, _ := strings.Cut(url, "sig=")
	for what, secret := range map[string]string{
		"the client secret": clientSecret, "the enrolment secret": mac, "the URL": signature,
		"the machine's key": strings.Split(string(must(m.key.PEM())), "\n")[1],
	} {
		if secret == "" || strings.Contains(rows, secret) {
			t.Errorf("%s (%q) is in the rows", what, secret)
		}
	}
	if !strings.Contains(rows, m.key.Thumbprint()) {
		t.Error("the rows are not those of the node")
	}
}

// Who has a backup can run a provider on it, with keys of his own: that gives no bundle and no secret
// of the nodes. With the keys of the installation he has all of it.
func TestStolenBackup(t *testing.T) {
	w, m := newMachine(t)
	w.must(200, "PUT", nodeURL("n"), nodeOf(clientA, "correct-horse-battery"))
	w.caughtUp()
	m.registers(t, 204, w.enrolment(t, "n"))
	_, text := w.must(200, "POST", nodeURL("n", "/regenerateToken"), "")
	url := path(decoded[api.ConfigURL](t, text).ConfigURL)
	w.caughtUp()
	own := w.keys
	for _, tt := range []struct {
		name string
		keys seal.Ring
		gets bool
	}{{"the installation's keys", own, true}, {"keys of his own", rptest.Ring(), false}} {
		w.keys = tt.keys
		w.start()
		_, text := w.must(200, "POST", nodeURL("n", "/listConfigUrl"), "{}")
		for what, r := range map[string]*http.Response{
			"the bundle of a URL in force": w.do("GET", url, ""),
			"the bundle of his own URL": w.do("GET",
				path(decoded[api.ConfigURL](t, text).ConfigURL), ""),
			"the secrets": m.refreshes(),
		} {
			if got := r.StatusCode == 200; got != tt.gets {
				t.Errorf("with %s he asks for %s: %d", tt.name, what, r.StatusCode)
			}
		}
	}
}

// refreshes asks for the credentials of its node.
func (m *machine) refreshes() *http.Response {
	body := refreshBody()
	return m.w.do("POST", nodeURL(m.node, "/refreshCredentials"), body,
		m.signs(machinekey.RequestOf("POST", m.path("/refreshCredentials"), []byte(body))))
}
