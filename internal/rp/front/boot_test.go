package front

import (
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/machinekey"
)

// replicas are two of a provider, asked in turns.
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

// next has the other replica be asked from now on, whose index knows all that was written.
func (r *replicas) next() {
	r.apis[0]()
	r.apis = []func(){r.apis[1], r.apis[0]}
	r.w.caughtUp()
}

// boots has a machine boot.
func (m *machine) boots() { m.said.Boot = machinekey.NewBoot() }

// copied returns a machine with a copy of the disk of another, which has booted.
func (m *machine) copied() *machine {
	c := *m
	c.boots()
	return &c
}

// told polls, and reports whether the answer reports a second machine.
func (m *machine) told(t *testing.T) bool {
	t.Helper()
	r, _ := m.w.must(200, "GET", nodeURL(m.node), "", m.signs(machinekey.Request{}))
	return r.Header.Get(machinekey.SecondHeader) == "true"
}

// A reboot is one write, whichever replicas are asked, and raises nothing; neither do a suspended
// machine and one whose clock is wrong.
func TestReboots(t *testing.T) {
	w, m := newMachine(t)
	m.registers(t, 204, w.enrolment(t, "n"))
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
			if m.told(t) || isSecond(w) {
				t.Fatalf("%s ahead, poll %d: a second machine", ahead, n)
			}
			w.caughtUp()
			w.clock.Pass(time.Hour) // suspended
		}
		if got := w.index.Revision(); got != before+1 {
			t.Errorf("%s ahead: %d writes", ahead, got-before)
		}
	}
}

// A copy of a disk has the key too. The older machine remains the node, the newer is refused by every
// replica, and both learn of it.
func TestCopiedDisk(t *testing.T) {
	w, m := newMachine(t)
	m.registers(t, 204, w.enrolment(t, "n"))
	both := twoReplicas(w)
	both.next()
	m.poll(t, 200)
	c := m.copied()
	both.next()
	if c.told(t) || isSecond(w) {
		t.Fatal("a reboot and a copy cannot be told apart yet")
	}
	both.next()
	w.clock.Pass(2 * time.Minute)
	m.poll(t, 200)
	w.caughtUp()
	for range 2 {
		both.next()
		if got := c.poll(t, 409); got != "SecondMachine" {
			t.Errorf("the newer machine: %s", got)
		}
		if !m.told(t) || !isSecond(w) {
			t.Error("the older machine, or the node, is not told")
		}
		m.post(t, 204, "/reportStatus", `{"agentVersion":"1"}`)
		for action, body := range map[string]string{
			"/reportStatus": "{}", "/beginChange": `{"configVersion":"1"}`,
			"/refreshCredentials": refreshBody(), "/registerKey": "{}",
		} {
			if got := c.post(t, 409, action, body); got != "SecondMachine" {
				t.Errorf("%s of the newer machine: %s", action, got)
			}
		}
	}
	fresh := w.enrolment(t, "n")
	c.registers(t, 204, fresh)
	both.next()
	if c.told(t) || isSecond(w) {
		t.Error("still shown after the owner has confirmed the newer one")
	}
	w.caughtUp()
	w.clock.Pass(48 * time.Hour)
	if got := m.poll(t, 409); got != "SecondMachine" {
		t.Errorf("the older machine then: %s", got)
	}
}

// Who has the key of a machine is refused while that is heard, and for good when the machine registers
// another key with the secret of a new URL.
func TestStolenKey(t *testing.T) {
	w, m := newMachine(t)
	m.registers(t, 204, w.enrolment(t, "n"))
	m.poll(t, 200)
	thief := m.copied()
	thief.poll(t, 200)
	w.caughtUp()
	w.clock.Pass(2 * time.Minute)
	m.poll(t, 200)
	w.caughtUp()
	for range 2 {
		thief.boots()
		thief.poll(t, 409)
		m.poll(t, 200)
	}
	fresh := w.enrolment(t, "n")
	m.key = must(machinekey.New())
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

// The newer machine takes the place of the older when that is silent for a day.
func TestCopyOfALostMachine(t *testing.T) {
	w, m := newMachine(t)
	m.registers(t, 204, w.enrolment(t, "n"))
	m.poll(t, 200)
	c := m.copied()
	c.poll(t, 200)
	w.caughtUp()
	w.clock.Pass(2 * time.Minute)
	m.poll(t, 200)
	w.caughtUp()
	w.clock.Pass(23 * time.Hour)
	c.poll(t, 409)
	w.clock.Pass(2 * time.Hour)
	c.poll(t, 200)
	w.caughtUp()
	if isSecond(w) {
		t.Error("still shown")
	}
}

// A report that is sent again says nothing after a later one; a machine whose clock was set back
// reports again when its former tokens have ended.
func TestReplayedReport(t *testing.T) {
	w, m := newMachine(t)
	m.registers(t, 204, w.enrolment(t, "n"))
	both := twoReplicas(w)
	said := func() string {
		w.caughtUp()
		return w.node(200, "GET", nodeURL("n"), "").Properties.Status.AgentVersion
	}
	sent := func(body string) func(status int) {
		header := m.signs(machinekey.RequestOf("POST", m.path("/reportStatus"), []byte(body)))
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
	if got := said(); got != "2" {
		t.Errorf("then the status is %s", got)
	}
	m.ahead = -4 * time.Minute
	third := sent(`{"agentVersion":"3"}`)
	third(409)
	w.clock.Pass(6*time.Minute + time.Second)
	sent(`{"agentVersion":"3"}`)(204)
	first(401)
	if got := said(); got != "3" {
		t.Errorf("the clock was set back: the status is %s", got)
	}
}

// A token of a boot before the present one reads, and does nothing else.
func TestTokenOfTheBootBefore(t *testing.T) {
	w, m := newMachine(t)
	m.registers(t, 204, w.enrolment(t, "n"))
	poll := m.signs(machinekey.Request{})
	report := m.signs(machinekey.RequestOf("POST", m.path("/reportStatus"), []byte("{}")))
	w.must(200, "GET", nodeURL("n"), "", poll)
	m.boots()
	m.poll(t, 200)
	w.caughtUp()
	w.must(200, "GET", nodeURL("n"), "", poll)
	w.must(401, "POST", nodeURL("n", "/reportStatus"), "{}", report)
	m.poll(t, 200)
	if isSecond(w) {
		t.Error("a second machine is shown")
	}
}

// A machine that goes back to a snapshot of its memory shows the boot before the present one again.
// That is reported, and the machine remains the node; a new URL ends the report.
func TestRevertedSnapshot(t *testing.T) {
	w, m := newMachine(t)
	m.registers(t, 204, w.enrolment(t, "n"))
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
		if !m.told(t) || !isSecond(w) {
			t.Error("the snapshot is not reported")
		}
		m.post(t, 204, "/reportStatus", `{"agentVersion":"1"}`)
	}
	m.registers(t, 204, w.enrolment(t, "n"))
	both.next()
	if m.told(t) || isSecond(w) {
		t.Error("still shown after the owner has confirmed the machine")
	}
}

// A machine that was installed again has lost its key: it is another machine until it has a new URL,
// and then what it had before is revoked.
func TestReinstalledMachine(t *testing.T) {
	w, m := newMachine(t)
	secret := w.enrolment(t, "n")
	m.registers(t, 204, secret)
	w.issued("before", secret)
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
	if may := w.listed(0); may != "after" || isSecond(w) {
		t.Errorf("%q may write, a second machine is shown: %v", may, isSecond(w))
	}
}
