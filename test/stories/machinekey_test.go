package stories

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/machinekey/verifier"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

// enrolmentSecret is the secret in each bundle of a URL.
const enrolmentSecret = "once"

// signed answers a request that is signed with a machine's key and registers it, or is refused; nil
// for other requests.
func (p *provider) signed(r *http.Request, action string) *http.Response {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	registers := action == "registerKey"
	if scheme != machinekey.Scheme && !registers {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return refusal(r, http.StatusBadRequest, "Body")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var ask api.RegisterKey
	if registers && json.Unmarshal(body, &ask) != nil {
		return refusal(r, http.StatusBadRequest, "Body")
	}
	if scheme != machinekey.Scheme {
		token = ask.MachineToken
	}
	p.mu.Lock()
	ahead := p.ahead
	p.mu.Unlock()
	got, err := verifier.Verifier{
		Audiences: []string{"https://" + r.URL.Host},
		Now:       func() time.Time { return time.Now().Add(ahead) },
		Nonce:     func(nonce string) (time.Time, bool) { return time.Now(), nonce == "nonce" },
	}.Verify(token)
	if errors.Is(err, verifier.ErrTime) {
		resp := refusal(r, http.StatusUnauthorized, "MachineTokenTime")
		resp.Header.Set(machinekey.NonceHeader, "nonce")
		return resp
	}
	if err != nil || got.UID != "u" {
		return refusal(r, http.StatusUnauthorized, "InvalidMachineToken")
	}
	if registers {
		return p.register(r, got.Thumbprint, ask)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.boots, got.Boot) {
		p.boots = append(p.boots, got.Boot)
	}
	switch {
	case got.Thumbprint != p.key:
		return refusal(r, http.StatusUnauthorized, "MachineKeyNotRegistered")
	case got.Boot == p.refuses:
		return refusal(r, http.StatusConflict, "SecondMachine")
	}
	return nil
}

// register registers a key once, with the secret or an identity.
func (p *provider) register(r *http.Request, key string, ask api.RegisterKey) *http.Response {
	if p.registers != nil {
		p.registers()
		defer p.registers()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.registered++
	switch {
	case p.fresh != "" && ask.EnrolmentSecret == p.fresh:
		p.fresh, p.key = "", ""
	case ask.MachineToken == "" && ask.EnrolmentSecret != enrolmentSecret && p.key != key:
		return refusal(r, http.StatusUnauthorized, "EnrolmentFailed")
	case p.key != "" && p.key != key:
		return refusal(r, http.StatusConflict, "SecondMachine")
	}
	p.key = key
	if p.principal == "" {
		p.principal = ask.PrincipalID
	}
	w := httptest.NewRecorder()
	w.WriteHeader(http.StatusNoContent)
	resp := w.Result()
	resp.Request = r
	return resp
}

func refusal(r *http.Request, status int, code string) *http.Response {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%q}}`, code)
	resp := w.Result()
	resp.Request = r
	return resp
}

// keyed changes the usual configuration, which joins with a bootstrap token: the node follows its
// resource at the provider's own listener, and has no Azure identity.
func keyed(c map[string]any) {
	c["continuousMonitoring"] = true
	at("provider.example")(c)
}

// A machine whose kubelet will have a certificate reports to the provider, with its key, the
// identity that requests it; one whose kubelet uses a token reports none. No Azure token is sent.
func TestTellsItsIdentity(t *testing.T) {
	for credential, want := range map[string]string{"certificate": objectID, "token": ""} {
		t.Run(credential, func(t *testing.T) {
			w, _ := azureWorld(t)
			given := w.delivery("7", w.azure(func(azure map[string]any) {
				azure["kubeletCredential"] = credential
			}), keyed)
			w.config, w.provider = given.Loaded.Config, &provider{offer: given, changed: make(chan struct{})}
			err := w.run(func(ctx context.Context, a *change.Agent) error {
				if err := change.Receive(ctx, a, given); err != nil {
					return err
				}
				_, err := change.Bootstrap(ctx, a, change.Input{
					Config: given.Loaded.Config, Origin: "url", Resource: given.Loaded.Resource})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if w.provider.principal != want || strings.HasPrefix(w.provider.shown, "Bearer") {
				t.Errorf("the provider has heard of %q, and was shown %.10s", w.provider.principal,
					w.provider.shown)
			}
		})
	}
}

// machineKey returns the thumbprint of the machine's key; "" without one.
func (w *world) machineKey() string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.root, saved.StateDir, saved.MachineKeyFile))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	if err != nil {
		w.t.Fatal(err)
	}
	key, err := machinekey.Parse(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return key.Thumbprint()
}

// A node that has joined with a bootstrap token, without an Azure identity, follows its resource: a
// change of labels, an upgrade, a rollback and the deletion.
func TestFollowsWithoutAzureIdentity(t *testing.T) {
	story(t, func(t *testing.T, s *serviceStory) {
		before := s.tree()
		offer := func(version string, edits ...func(map[string]any)) change.Delivery {
			return s.delivery(version,
				append([]func(map[string]any){keyed, readyTimeout("1m")}, edits...)...)
		}
		first := offer("7")
		s.provider = &provider{offer: first, changed: make(chan struct{})}
		if err := change.Receive(t.Context(), s.agent(), first); err != nil {
			t.Fatal(err)
		}
		s.join()
		s.until(2*time.Minute, "it reports", func() bool {
			c := s.provider.said().Config
			return c != nil && c.Applied == "7"
		})
		s.sleep(2 * time.Minute)
		key := s.machineKey()
		info, err := os.Stat(filepath.Join(s.root, saved.StateDir, saved.MachineKeyFile))
		if err != nil || info.Mode() != 0o600 || key == "" || key != s.provider.key {
			t.Errorf("the key %s, registered %s: %v, %v", key, s.provider.key, info, err)
		}

		label := func(site string) func(map[string]any) {
			return func(c map[string]any) {
				c["node"].(map[string]any)["labels"] = map[string]any{"example.com/site": site}
			}
		}
		labelled := func(site string) func() bool {
			return func() bool { return s.cluster.node1().Labels["example.com/site"] == site }
		}
		s.provider.offers(offer("8", label("south")))
		if took := s.until(time.Minute, "the label", labelled("south")); took > 5*time.Second {
			t.Errorf("the label took %s", took)
		}
		upgraded := s.kubernetes("1.35.1", "1.35.1")
		s.provider.offers(offer("9", label("south"), upgraded, pods(42)))
		s.until(10*time.Minute, "the upgrade is committed", s.versionIs("9"))
		s.onKubelet(func() error {
			if s.takes("43")() {
				return errors.New("kubelet does not like this")
			}
			return nil
		})
		s.provider.offers(offer("10", label("north"), upgraded, pods(43)))
		s.until(10*time.Minute, "the rollback is reported", func() bool {
			c := s.provider.said().Config
			return c != nil && c.Failed != nil && c.Failed.Version == "10" && c.Applied == "9"
		})
		s.healthy("42")
		if s.provider.registered != 1 || s.machineKey() != key {
			t.Errorf("registered %d times", s.provider.registered)
		}
		if text := s.log.String(); strings.Contains(text, enrolmentSecret+"\"") {
			t.Error("the log has the enrolment secret")
		}
		s.provider.offers(change.Delivery{})
		s.until(5*time.Minute, "the node has left", func() bool { return !s.registered() })
		s.ends()
		if s.outcome.Kind != transition.Deleted {
			t.Errorf("the daemon ended with %v", s.outcome)
		}
		s.unlock()
		s.same(before)
	})
}

// A machine that is killed before it has registered its key, or before it has read the answer,
// continues with the same key.
func TestKilledWhileRegistering(t *testing.T) {
	t.Parallel()
	kept := map[bool]int{} // kills at which a key is on disk, by whether it was registered
	var key string
	c := campaign{run: (*world).joinsByURL, prepare: func(w *world) error {
		w.offer = w.delivery(versionBefore, keyed)
		w.config = w.offer.Loaded.Config
		w.provider = &provider{offer: w.offer, changed: make(chan struct{})}
		w.provider.registers = func() { w.touch(w.running())() }
		return nil
	}, killed: func(w *world, _ *testing.T, _ string) {
		if key = w.machineKey(); key != "" {
			kept[w.provider.key != ""]++
		}
	}, again: func(w *world) error {
		if err := errors.Join(w.joinsByURL(), w.saysWhich(versionBefore, podsBefore)); err != nil {
			return err
		}
		if is := w.machineKey(); is != w.provider.key || key != "" && key != is {
			return fmt.Errorf("the key is %s, was %s; registered is %s", is, key, w.provider.key)
		}
		return nil
	}}
	for n := 0; kept[true] < 4; n++ {
		if !c.killedAt(t, n, fmt.Sprintf("killed at touch %d", n)) || t.Failed() {
			break
		}
	}
	if kept[false] == 0 || kept[true] == 0 {
		t.Errorf("kills with a key, by whether it was registered: %v", kept)
	}
}
