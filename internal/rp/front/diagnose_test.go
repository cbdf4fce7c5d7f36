package front

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// asked returns the request that the answer to a poll has.
func (m *machine) asked() (id, kind string) {
	m.w.t.Helper()
	m.w.caughtUp()
	r, _ := m.w.must(200, "GET", nodeURL(m.node), "", m.signs(machinekey.Request{}))
	id, kind, _ = strings.Cut(r.Header.Get(api.DiagnoseHeader), " ")
	return id, kind
}

// diagnose asks for a diagnosis as the owner.
func (w *world) diagnose(kind string) api.Diagnosis {
	w.t.Helper()
	_, text := w.must(200, "POST", nodeURL("n", "/diagnose"), `{"kind":"`+kind+`"}`)
	return decoded[api.Diagnosis](w.t, text)
}

// answers has the machine answer a diagnosis, and returns the code of an error.
func (m *machine) answers(t *testing.T, status int, d api.Diagnosed) string {
	t.Helper()
	return m.post(t, status, "/reportDiagnosis", string(must(json.Marshal(d))))
}

// An owner asks the machine of a node for a diagnosis, the next poll tells the machine, and its
// answer is read for a day. A request names no key.
func TestDiagnose(t *testing.T) {
	w, m := newMachine(t)
	m.registers(t, 204, w.enrolment(t, "n"))
	if id, _ := m.asked(); id != "" {
		t.Errorf("it is asked for %s before a request", id)
	}
	w.must(409, "POST", nodeURL("n", "/listDiagnosis"), "")
	asked := w.diagnose("doctor")
	if asked.State != "Requested" || asked.RequestedBy != "ops@example.com" {
		t.Errorf("asked: %+v", asked)
	}
	if !strings.Contains(w.audit.String(), "diagnose/action") {
		t.Error("the audit log does not have the request")
	}
	id, kind := m.asked()
	if id != asked.ID || kind != "doctor" {
		t.Fatalf("it is asked for %q %q", id, kind)
	}
	if got := m.answers(t, 409, api.Diagnosed{ID: "another"}); got != "DiagnosisNotRequested" {
		t.Errorf("another answer: %s", got)
	}
	found := []api.Finding{{Type: "KubeletRunning", Verdict: "fault", Message: "it does not run"}}
	m.answers(t, 204, api.Diagnosed{ID: id, Findings: found})
	if !strings.Contains(w.audit.String(), "reportDiagnosis/action") {
		t.Error("the audit log does not have the answer")
	}
	m.answers(t, 409, api.Diagnosed{ID: id})
	if id, _ = m.asked(); id != "" {
		t.Errorf("it is asked for %s again", id)
	}
	_, text := w.must(200, "POST", nodeURL("n", "/listDiagnosis"), "")
	d := decoded[api.Diagnosis](t, text)
	if d.State != "Completed" || len(d.Findings) != 1 || d.Findings[0].Type != "KubeletRunning" ||
		d.Completed == nil {
		t.Errorf("answered: %s", text)
	}
	w.clock.Pass(25 * time.Hour)
	w.must(409, "POST", nodeURL("n", "/listDiagnosis"), "")
	if id, _ = m.asked(); id != "" {
		t.Errorf("it is asked for %s a day later", id)
	}
}

// A bundle is taken up to its bound, a refusal with its reason, and both go with the node.
func TestDiagnoseBundle(t *testing.T) {
	w, m := newMachine(t)
	m.registers(t, 204, w.enrolment(t, "n"))
	d := api.Diagnosed{ID: w.diagnose("supportBundle").ID}
	w.caughtUp()
	d.SupportBundle = make([]byte, flexnode.MaxBundle)
	m.answers(t, 204, d)
	_, text := w.must(200, "POST", nodeURL("n", "/listDiagnosis"), "")
	if got := decoded[api.Diagnosis](t, text); len(got.SupportBundle) != flexnode.MaxBundle {
		t.Errorf("it has %d bytes", len(got.SupportBundle))
	}
	d = api.Diagnosed{ID: w.diagnose("supportBundle").ID, Refused: "there is no key"}
	m.answers(t, 204, d)
	_, text = w.must(200, "POST", nodeURL("n", "/listDiagnosis"), "")
	if got := decoded[api.Diagnosis](t, text); got.State != "Refused" || got.Message != d.Refused ||
		got.SupportBundle != nil {
		t.Errorf("refused: %.300s", text)
	}
	for _, bad := range []api.Diagnosed{
		{SupportBundle: make([]byte, flexnode.MaxBundle+1)},
		{Findings: []api.Finding{{Type: "X", Message: "a\x1b[2J"}}},
		{Findings: []api.Finding{{Type: strings.Repeat("x", 5000)}}},
		{Findings: make([]api.Finding, 5000)},
	} {
		m.answers(t, 400, bad)
	}
	w.must(200, "DELETE", nodeURL("n"), "")
	w.must(201, "PUT", nodeURL("n"), "{}")
	w.must(409, "POST", nodeURL("n", "/listDiagnosis"), "")
}

// What cannot be asked is refused: another kind, a key, a node that does not follow, too many.
func TestDiagnoseRefused(t *testing.T) {
	w := newEdge(t)
	w.must(404, "POST", nodeURL("n", "/diagnose"), `{"kind":"doctor"}`)
	w.must(404, "POST", nodeURL("n", "/listDiagnosis"), "")
	w.must(201, "PUT", nodeURL("n"), "{}")
	for _, body := range []string{`{"kind":"shell"}`, `{}`, `{"kind":"supportBundle","key":"age1x"}`} {
		w.must(400, "POST", nodeURL("n", "/diagnose"), body)
	}
	w.must(201, "PUT", nodeURL("alone"), `{"properties":{"continuousMonitoring":false}}`)
	_, text := w.must(409, "POST", nodeURL("alone", "/diagnose"), `{"kind":"doctor"}`)
	if code(text) != "NotFollowing" {
		t.Errorf("%s", text)
	}
	for i := range flexnode.MaxDiagnoses {
		name := fmt.Sprintf("n%d", i)
		w.must(201, "PUT", nodeURL(name), "{}")
		w.must(200, "POST", nodeURL(name, "/diagnose"), `{"kind":"doctor"}`)
	}
	_, text = w.must(409, "POST", nodeURL("n", "/diagnose"), `{"kind":"doctor"}`)
	if code(text) != "TooManyDiagnoses" {
		t.Errorf("%s", text)
	}
	w.must(200, "POST", nodeURL("n3", "/diagnose"), `{"kind":"doctor"}`)
}
