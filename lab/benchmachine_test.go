package lab

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/machinekey/verifier"
)

// A machine of the load registers its key with an identity, reuses its poll token, and gets a token
// for each other request.
func TestBenchMachine(t *testing.T) {
	verify := func(token string) verifier.Verified {
		t.Helper()
		got, err := verifier.Verifier{Audiences: []string{ProviderURL}, Now: time.Now}.Verify(token)
		if err != nil || got.UID != "uid" {
			t.Errorf("a token: %+v, %v", got, err)
		}
		return got
	}
	const path = "/node"
	var registered string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var ask api.RegisterKey
		if err != nil || json.Unmarshal(body, &ask) != nil || r.URL.Path != path+"/registerKey" ||
			r.Header.Get("Authorization") != "Bearer identity" {
			t.Errorf("%s %s: %s", r.Method, r.URL, body)
		}
		got := verify(ask.MachineToken)
		if registered = got.Thumbprint; got.Request != machinekey.RequestOf("POST", r.URL.Path, nil) {
			t.Errorf("the token is for %+v", got.Request)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	m, err := newBenchMachine(path, "uid")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.register(t.Context(), server.Client(), server.URL, "identity"); err != nil {
		t.Fatal(err)
	}
	polls := map[string]bool{}
	for range 3 {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if err := m.signPoll(r); err != nil {
			t.Fatal(err)
		}
		_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		polls[token] = true
		if got := verify(token); got.Thumbprint != registered ||
			got.Request != (machinekey.Request{}) {
			t.Errorf("a poll: %+v", got)
		}
	}
	token, err := m.token("reportStatus", []byte("{}"))
	if err != nil || len(polls) != 1 {
		t.Fatalf("%d tokens of polls, %v", len(polls), err)
	}
	if got := verify(token); got.Request !=
		machinekey.RequestOf("POST", path+"/reportStatus", []byte("{}")) {
		t.Errorf("a report: %+v", got)
	}
}
