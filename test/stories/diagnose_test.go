package stories

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/agent/diagnose"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/health"
)

// diagnosis requests a diagnosis as the provider, and returns the machine's answer.
func (s *serviceStory) diagnosis(id, kind string) api.Diagnosed {
	s.t.Helper()
	var before int
	s.provider.set(func() { s.provider.question, before = id+" "+kind, len(s.provider.diagnosed) })
	var answer api.Diagnosed
	s.until(5*time.Minute, "the provider has the diagnosis", func() (there bool) {
		s.provider.set(func() {
			if there = len(s.provider.diagnosed) > before; there {
				answer = s.provider.diagnosed[before]
			}
		})
		return there
	})
	if answer.ID != id {
		s.t.Errorf("it has answered %q, not %q", answer.ID, id)
	}
	if !strings.Contains(s.log.String(), id) {
		s.t.Errorf("the log does not have the request %s", id)
	}
	return answer
}

// A provider gets the report of doctor, and a support bundle that it cannot read, as far as the
// machine's policy allows. A request is answered only once.
func TestDiagnosesItself(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.sleep(2 * time.Minute)
		s.write("/run/reboot-required", "")
		d := s.diagnosis("one", "doctor")
		if d.Refused != "" || !slices.ContainsFunc(d.Findings, func(f api.Finding) bool {
			return f.Type == "RebootNotPending" && f.Verdict == "warning" && f.Message != ""
		}) {
			t.Errorf("doctor says %+v", d)
		}
		s.sleep(5 * time.Minute)
		if n := len(s.provider.diagnosed); n != 1 {
			t.Errorf("it has answered %d times", n)
		}
		if d = s.diagnosis("two", "supportBundle"); !strings.Contains(d.Refused, "diagnose.key") ||
			d.SupportBundle != nil {
			t.Errorf("without a key: %.300s", d.Refused)
		}
		key := `{"key": "` + identity.Recipient().String() + `"`
		s.allow(providers(`, "diagnose": ` + key + `}`))
		d = s.diagnosis("three", "supportBundle")
		opened, err := age.Decrypt(bytes.NewReader(d.SupportBundle), identity)
		if err != nil {
			t.Fatalf("%v: %q", err, d.Refused)
		}
		unzipped, err := gzip.NewReader(opened)
		var text []byte
		if err == nil {
			text, err = io.ReadAll(unzipped)
		}
		if err != nil || !bytes.Contains(text, []byte("manifest.json")) {
			t.Errorf("the bundle: %v", err)
		}
		s.allow(providers(`, "diagnose": ` + key + `, "supportBundle": "refuse", "doctor": "refuse"}`))
		for _, kind := range []string{"doctor", "supportBundle"} {
			d = s.diagnosis("four-"+kind, kind)
			if !strings.Contains(d.Refused, "diagnose."+kind+" refuses") || d.Findings != nil ||
				d.SupportBundle != nil {
				t.Errorf("%s, by its policy: %+v", kind, d)
			}
		}
		s.allow("{")
		if d = s.diagnosis("five", "doctor"); !strings.Contains(d.Refused, "policy") {
			t.Errorf("with a broken policy: %+v", d)
		}
	})
}

// An answer that does not arrive is sent again.
func TestDiagnosisIsDeliveredAgain(t *testing.T) {
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		s.sleep(2 * time.Minute)
		s.provider.set(func() { s.provider.unheard = errors.New("connection reset by peer") })
		s.provider.set(func() { s.provider.question = "one doctor" })
		s.sleep(10 * time.Minute)
		s.provider.set(func() { s.provider.unheard = nil })
		if d := s.diagnosis("one", "doctor"); d.Refused != "" || len(d.Findings) == 0 {
			t.Errorf("it says %+v", d)
		}
	})
}

// A diagnosis is not a check of the service, and no progress of its worker: a request for one
// neither restarts containerd nor spares a worker that hangs.
func TestDiagnosisIsBesideTheWorker(t *testing.T) {
	w := newWorld(t)
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	a := w.agent()
	a.InService = true
	answer := diagnose.Answers(a, a.Machine)
	beats := 0
	a.Beat = func() { beats++ }
	runtime := func() string {
		w.hung.Store(1)
		status, err := inspect.ReadStatus(t.Context(), &a.Env)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range status.Conditions {
			if c.Type == health.ContainerdRunning {
				return c.Reason
			}
		}
		return ""
	}
	w.hung.Store(1)
	beats = 0
	if d := answer(t.Context(), api.Doctor); len(d.Findings) == 0 || w.hung.Load() != 0 {
		t.Errorf("it says %+v", d)
	}
	if beats > 0 {
		t.Errorf("it is taken for %d signs of life", beats)
	}
	if reason := runtime(); reason == "Hung" {
		t.Error("its question counts as one of the service")
	}
	if reason := runtime(); reason != "Hung" {
		t.Errorf("after two questions of the service it is %s", reason)
	}
}
