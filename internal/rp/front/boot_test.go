package front

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/machinekey/machinekeytest"
	"github.com/Azure/AKSFlexNode/internal/rp/fair"
	"github.com/Azure/AKSFlexNode/internal/rp/rptest"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
)

// replicas are two replicas of a provider, used in turns.
type replicas struct {
	w    *world
	apis []func()
}

// twoReplicas starts another replica on the store of a world.
func twoReplicas(w *world) *replicas {
	use := func() func() {
		api, index, front := w.api, w.index, w.front
		return func() { w.api, w.index, w.front = api, index, front }
	}
	first := use()
	w.start()
	return &replicas{w, []func(){first, use()}}
}

// next switches to the other replica, whose index has everything that was written.
func (r *replicas) next() {
	r.apis[0]()
	r.apis = []func(){r.apis[1], r.apis[0]}
	r.w.caughtUp()
}

// boots boots the machine.
func (m *machine) boots() { m.said.Boot = machinekey.NewBoot() }

// copied returns a machine with a copy of the disk of another, which has booted.
func (m *machine) copied() *machine {
	c := *m
	c.boots()
	return &c
}

// copiedBefore returns a copy that has polled, before the machine polled again.
func (m *machine) copiedBefore(t *testing.T) *machine {
	t.Helper()
	c := m.copied()
	c.poll(t, 200)
	m.w.caughtUp()
	m.w.clock.Pass(2 * time.Minute)
	m.poll(t, 200)
	m.w.caughtUp()
	return c
}

// told polls, and checks whether the answer, and the node, report a second machine.
func (m *machine) told(t *testing.T, what string, want bool) {
	t.Helper()
	r, _ := m.w.must(200, "GET", nodeURL(m.node), "", m.signs(machinekey.Request{}))
	shows(t, what+": a second machine is reported to it, and shown", fmt.Sprint(want, " ", want),
		r.Header.Get(machinekey.SecondHeader) == "true", isSecond(m.w))
}

// A reboot is one write, on any replica; so is a suspended machine and a wrong clock.
func TestReboots(t *testing.T) {
	w, m := enrolled(t)
	both := twoReplicas(w)
	for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		m.ahead = ahead
		m.boots()
		before := w.index.Revision()
		for n := range 6 {
			both.next()
			m.said.Nonce = ""
			if ahead != 0 {
				r, _ := w.must(401, "GET", nodeURL("n"), "", m.signs(machinekey.Request{}))
				m.said.Nonce = r.Header.Get(machinekey.NonceHeader)
			}
			m.told(t, fmt.Sprintf("%s ahead, poll %d", ahead, n), false)
			w.caughtUp()
			w.clock.Pass(time.Hour) // suspended
		}
		equal(t, ahead.String()+" ahead, writes", w.index.Revision()-before, 1)
	}
}

// A copied disk has the key too: every replica refuses the newer machine, and both get a warning.
func TestCopiedDisk(t *testing.T) {
	w, m := enrolled(t)
	both := twoReplicas(w)
	both.next()
	m.poll(t, 200)
	c := m.copied()
	both.next()
	c.told(t, "a copy, which cannot be told from a reboot yet", false)
	again := c.copied()
	both.next()
	again.poll(t, 200)
	both.next()
	w.clock.Pass(2 * time.Minute)
	m.poll(t, 200)
	w.caughtUp()
	equal(t, "the newer machine, by its last boot", again.poll(t, 409), "SecondMachine")
	for range 2 {
		both.next()
		equal(t, "the newer machine", c.poll(t, 409), "SecondMachine")
		m.told(t, "the older machine", true)
		m.post(t, 204, "/reportStatus", `{"agentVersion":"1"}`)
		for action, body := range map[string]string{
			"/reportStatus": "{}", "/beginChange": `{"configVersion":"1"}`,
			"/refreshCredentials": refreshBody(), "/registerKey": "{}",
		} {
			equal(t, action+" of the newer machine", c.post(t, 409, action, body), "SecondMachine")
		}
	}
	c.registers(t, 204, w.enrolment(t, "n"))
	both.next()
	c.told(t, "the newer one, which the owner has confirmed", false)
	w.caughtUp()
	w.clock.Pass(48 * time.Hour)
	equal(t, "the older machine then", m.poll(t, 409), "SecondMachine")
}

// A stolen key is refused while its machine is heard, and for good after a new key with a new URL.
func TestStolenKey(t *testing.T) {
	w, m := enrolled(t)
	w.api.Throttle = fair.NewThrottle(fair.DefaultRates(), nil, w.clock.Now)
	m.poll(t, 200)
	thief := m.copied()
	thief.poll(t, 200)
	for range 2 {
		thief.boots()
		thief.poll(t, 200)
		w.caughtUp()
	}
	w.clock.Pass(2 * time.Minute)
	for range 10 { // which uses up the rate of unknown boots, too
		thief.boots()
		thief.poll(t, 429)
	}
	m.poll(t, 200)
	w.caughtUp()
	w.clock.Pass(20 * time.Second)
	for range 2 {
		thief.boots()
		thief.poll(t, 409)
		m.poll(t, 200)
	}
	fresh := w.enrolment(t, "n")
	m.key = machinekey.New()
	m.registers(t, 204, fresh)
	m.poll(t, 200)
	for range 2 {
		thief.poll(t, 401)
		thief.registers(t, 409, fresh)
		w.clock.Pass(48 * time.Hour)
		thief.boots()
	}
	m.poll(t, 200)
}

// The newer machine replaces the older one when that is silent for a day.
func TestCopyOfALostMachine(t *testing.T) {
	w, m := enrolled(t)
	m.poll(t, 200)
	c := m.copiedBefore(t)
	w.clock.Pass(2 * time.Hour)
	m.poll(t, 200)
	w.clock.Pass(23 * time.Hour)
	c.poll(t, 409)
	w.clock.Pass(2 * time.Hour)
	c.poll(t, 200)
	w.caughtUp()
	equal(t, "a second machine is shown", isSecond(w), false)
}

// A replayed report has no effect after a later one, but one after a clock was set back may.
func TestReplayedReport(t *testing.T) {
	w, m := enrolled(t)
	both := twoReplicas(w)
	said := func() string {
		w.caughtUp()
		return w.node(200, "GET", nodeURL("n"), "").Properties.Status.AgentVersion
	}
	sent := func(body string) func(status int) {
		header := m.binds("POST", "/reportStatus", body)
		return func(status int) {
			t.Helper()
			both.next()
			w.must(status, "POST", nodeURL("n", "/reportStatus"), body, header)
		}
	}
	first := sent(`{"agentVersion":"1"}`)
	first(204)
	first(204)
	w.clock.Pass(2 * time.Second)
	second := sent(`{"agentVersion":"2"}`)
	second(204)
	first(409)
	second(204)
	equal(t, "the status then", said(), "2")
	m.ahead = -4 * time.Minute
	third := sent(`{"agentVersion":"3"}`)
	third(409)
	w.clock.Pass(6*time.Minute + time.Second)
	sent(`{"agentVersion":"3"}`)(204)
	first(401)
	equal(t, "the status after the clock was set back", said(), "3")
}

// A token of a former boot can read, and nothing else.
func TestTokenOfTheBootBefore(t *testing.T) {
	w, m := enrolled(t)
	poll := m.signs(machinekey.Request{})
	report := m.binds("POST", "/reportStatus", "{}")
	w.must(200, "GET", nodeURL("n"), "", poll)
	m.boots()
	m.poll(t, 200)
	w.caughtUp()
	w.must(200, "GET", nodeURL("n"), "", poll)
	w.must(401, "POST", nodeURL("n", "/reportStatus"), "{}", report)
	m.poll(t, 200)
	equal(t, "a second machine is shown", isSecond(w), false)
}

// A machine that returns to a snapshot of its memory shows the former boot again. That is reported,
// and the machine remains the node; a new URL ends the report.
func TestRevertedSnapshot(t *testing.T) {
	w, m := enrolled(t)
	both := twoReplicas(w)
	both.next()
	m.poll(t, 200)
	snapshot := m.said.Boot
	m.boots()
	both.next()
	m.poll(t, 200)
	w.clock.Pass(2 * time.Minute)
	m.said.Boot = snapshot
	both.next()
	m.poll(t, 200)
	for range 2 {
		both.next()
		m.told(t, "the snapshot", true)
		m.post(t, 204, "/reportStatus", `{"agentVersion":"1"}`)
	}
	m.registers(t, 204, w.enrolment(t, "n"))
	both.next()
	m.told(t, "the machine, which the owner has confirmed", false)
}

// A reinstalled machine has lost its key: a new URL revokes its previous credentials.
func TestReinstalledMachine(t *testing.T) {
	w, m := newMachine(t)
	secret := m.joins(t, "before")
	both := twoReplicas(w)
	both.next()
	again := w.machineOf("n")
	for range 2 {
		again.poll(t, 401)
		again.registers(t, 409, secret) // the owner has kept the bundle
		both.next()
	}
	fresh := w.enrolment(t, "n")
	both.next()
	again.registers(t, 204, fresh)
	w.issued("after", fresh)
	both.next()
	again.poll(t, 200)
	shows(t, "who may write, and whether a second is shown", "after false", w.listed(0), isSecond(w))
}

// A thief of an unused bundle is the node until the owner sees that the right machine was refused
// and makes another URL: that ends the thief's key and certificate.
func TestStolenBundle(t *testing.T) {
	w, right := newMachine(t)
	secret := w.enrolment(t, "n")
	thief := w.machineOf("n")
	thief.registers(t, 204, secret)
	thief.poll(t, 200)
	thief.post(t, 200, "/refreshCredentials", refreshBody())
	w.issued("thief", secret)
	equal(t, "the right machine", right.registers(t, 409, secret), "SecondMachine")
	equal(t, "a second machine is shown", isSecond(w), true)
	fresh := right.joins(t, "right")
	thief.poll(t, 401)
	thief.post(t, 401, "/refreshCredentials", refreshBody())
	thief.post(t, 401, "/leave", "{}")
	thief.registers(t, 409, fresh)
	equal(t, "who may write as the Node", w.listed(0), "right")
}

// A URL gives the bundle until it is replaced, its node is deleted, a machine that has joined
// already has used it, or a day has passed.
func TestStolenURL(t *testing.T) {
	pair, _ := machinekeytest.NewCA().Kubelet("n", false)
	ends := map[string]func(*world, string){
		"a new URL": func(w *world, _ string) { w.enrolment(t, "n") },
		"a machine that has joined": func(w *world, secret string) {
			w.machineOf("n").registersAsKubelet(t, 204, secret, pair)
			w.refused(409, "NoConfigUrl", "POST", nodeURL("n", "/listConfigUrl"), "{}")
		},
		"a change": func(w *world, _ string) {
			w.must(200, "PUT", nodeURL("n"), `{"properties":{"nodeConfig":{"maxPods":20}}}`)
		},
		"a deletion": func(w *world, _ string) { w.must(200, "DELETE", nodeURL("n"), "") },
		"the end of its day": func(w *world, _ string) {
			w.clock.Pass(24 * time.Hour)
			w.until("the secret to end", func() bool { return w.storedNode("n").Enrolment == "" })
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			w, _ := newMachine(t)
			made := reads[api.ConfigURL](w, 200, "POST", nodeURL("n", "/regenerateToken"), "")
			url := path(made.ConfigURL)
			secret := reads[api.Bundle](w, 200, "GET", url, "").EnrolmentSecret
			w.must(403, "GET", strings.Replace(url, "sig=", "sig=x", 1), "")
			end(w, secret)
			w.caughtUp()
			_, text := w.must(403, "GET", url, "")
			lacks(t, "the refusal", text, secret)
			if name != "a deletion" {
				status := map[bool]int{true: 409, false: 401}[name == "a machine that has joined"]
				w.machineOf("n").registers(t, status, secret)
			}
		})
	}
}

// The token of a poll reads the configuration without secrets, for five minutes, and nothing more.
func TestStolenToken(t *testing.T) {
	const clientSecret = "correct-horse-battery"
	w, m := newMachine(t)
	w.settles(200, "PUT", nodeURL("n"), nodeOf(clientA, clientSecret))
	m.registers(t, 204, w.enrolment(t, "n"))
	token := m.signs(machinekey.Request{})
	_, text := w.must(200, "GET", nodeURL("n"), "", token)
	has(t, "what the token reads", text, clientA)
	lacks(t, "what the token reads", text, clientSecret)
	for _, action := range []string{"/reportStatus", "/beginChange", "/refreshCredentials",
		"/registerKey", "/leave", "/regenerateToken", "/listConfigUrl"} {
		w.must(401, "POST", nodeURL("n", action), "{}", token)
	}
	w.must(401, "PUT", nodeURL("n"), "{}", token)
	w.must(401, "DELETE", nodeURL("n"), "", token)
	w.clock.Pass(machinekey.Lifetime + time.Minute)
	w.must(401, "GET", nodeURL("n"), "", token)
}

// The rows of a node, in the store or a backup, contain no secret with which a reader could be the
// node: secrets are sealed with the keys, or not stored.
func TestRowsHaveNoSecret(t *testing.T) {
	w := newEdge(t)
	const clientSecret = "correct-horse-battery"
	w.settles(201, "PUT", nodeURL("n"), nodeOf(clientA, clientSecret))
	url := reads[api.ConfigURL](w, 200, "POST", nodeURL("n", "/regenerateToken"), "").ConfigURL
	_, text := w.must(200, "GET", path(url), "")
	has(t, "the bundle", text, clientSecret)
	bundle := decoded[api.Bundle](t, text)
	m := w.machineOf("n")
	m.registers(t, 204, bundle.EnrolmentSecret)
	credentials, _, err1 := w.api.Store.Credentials.List(t.Context(), "")
	secrets, _, err2 := w.api.Store.Secrets.List(t.Context(), "")
	shows(t, "there are credentials, and sealed secrets", "true true <nil> <nil>",
		len(credentials) > 0, len(secrets) > 0, err1, err2)
	rows := string(must(json.Marshal([]any{w.storedNode("n"), credentials, secrets})))
	_, mac, _ := strings.Cut(bundle.EnrolmentSecret, ".")
	_, signature, _ := strings.Cut(url, "sig=")
	for what, secret := range map[string]string{
		"the client secret": clientSecret, "the enrolment secret": mac, "the URL": signature,
		"the machine's key": strings.Split(string(m.key.PEM()), "\n")[1],
	} {
		if secret == "" || strings.Contains(rows, secret) {
			t.Errorf("%s (%q) is in the rows", what, secret)
		}
	}
	has(t, "the rows of the node", rows, m.key.Thumbprint())
}

// A thief of a backup can run a provider on it, with other keys: that gives no bundle and no secret
// of the nodes. With the keys of the installation it gives all of them.
func TestStolenBackup(t *testing.T) {
	w, m := newMachine(t)
	w.settles(200, "PUT", nodeURL("n"), nodeOf(clientA, "correct-horse-battery"))
	m.registers(t, 204, w.enrolment(t, "n"))
	url := reads[api.ConfigURL](w, 200, "POST", nodeURL("n", "/regenerateToken"), "").ConfigURL
	body := refreshBody()
	w.caughtUp()
	for _, tt := range []struct {
		name string
		keys seal.Ring
		gets bool
	}{{"the installation's keys", w.keys, true}, {"keys of his own", rptest.Ring(), false}} {
		w.keys = tt.keys
		w.start()
		his := reads[api.ConfigURL](w, 200, "POST", nodeURL("n", "/listConfigUrl"), "{}").ConfigURL
		for what, r := range map[string]*http.Response{
			"the bundle of a URL in force": w.do("GET", path(url), ""),
			"the bundle of his own URL":    w.do("GET", path(his), ""),
			"the secrets": w.do("POST", nodeURL("n", "/refreshCredentials"), body,
				m.binds("POST", "/refreshCredentials", body)),
		} {
			equal(t, "with "+tt.name+" he gets "+what, r.StatusCode == 200, tt.gets)
		}
	}
}
