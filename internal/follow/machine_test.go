package follow

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/machinekey/machinekeytest"
	"github.com/Azure/AKSFlexNode/internal/machinekey/verifier"
	"github.com/Azure/AKSFlexNode/internal/transition"
)

const listenerURL = "https://provider.example"

// listenerOf is a provider's own listener, which knows one key.
type listenerOf struct {
	t *testing.T
	// knows is the thumbprint that is registered, enrols the secret that registers one.
	knows, enrols string
	// ahead is by how much its clock is.
	ahead time.Duration
	// tokens holds the received tokens, registered counts requests that register.
	tokens     []string
	registered int
	refuses    string // code of each registration
	principal  string // what the machine says that it joins as
	second     bool   // it refuses the machine that is registered
	kubelet    *x509.Certificate
}

func (l *listenerOf) refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": code}})
}

func (l *listenerOf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		l.t.Error(err)
	}
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	l.tokens = append(l.tokens, text)
	registers := strings.HasSuffix(r.URL.Path, "/registerKey")
	if scheme == "Bearer" && registers && text == "azure" {
		var ask agentapi.RegisterKey
		if err := json.Unmarshal(body, &ask); err != nil {
			l.t.Error(err)
		}
		l.register(w, l.verify(w, ask.MachineToken, r, nil), true)
		return
	}
	if scheme != machinekey.Scheme {
		l.t.Errorf("%s %s is shown a token of %s", r.Method, r.URL.Path, scheme)
	}
	got := l.verify(w, text, r, body)
	switch {
	case got == nil:
	case registers:
		var ask agentapi.RegisterKey
		if err := json.Unmarshal(body, &ask); err != nil {
			l.t.Error(err)
		}
		l.principal = ask.PrincipalID
		l.register(w, got, l.enrols != "" && ask.EnrolmentSecret == l.enrols ||
			l.vouched(got, ask) || got.Thumbprint == l.knows)
	case got.Thumbprint != l.knows:
		l.refuse(w, 401, notRegistered)
	case l.second:
		l.refuse(w, 409, secondMachine)
	case r.Method == http.MethodGet:
		w.Header().Set("ETag", `"1"`)
		_, _ = io.WriteString(w, `{"id":"`+nodeID+`","properties":{"resourceUid":"`+nodeUID+`"}}`)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// verify verifies a token, and that it is for a request; nil for one that was refused.
func (l *listenerOf) verify(
	w http.ResponseWriter, text string, r *http.Request, body []byte,
) *verifier.Verified {
	now := func() time.Time { return time.Now().Add(l.ahead) }
	v := verifier.Verifier{
		Audiences: []string{listenerURL}, Now: now,
		Nonce: func(nonce string) (time.Time, bool) { return now(), nonce == "nonce" },
	}
	got, err := v.Verify(text)
	if errors.Is(err, verifier.ErrTime) {
		w.Header().Set(machinekey.NonceHeader, "nonce")
		l.refuse(w, 401, "MachineTokenTime")
		return nil
	}
	want := machinekey.Request{}
	if r.Method == http.MethodPost {
		want = machinekey.RequestOf(r.Method, r.URL.Path, body)
	}
	if err != nil || got.UID != nodeUID || got.Request != want {
		l.t.Errorf("%s %s: %v, %+v", r.Method, r.URL.Path, err, got)
	}
	return &got
}

// vouched reports whether the node's kubelet vouches for a machine.
func (l *listenerOf) vouched(got *verifier.Verified, ask agentapi.RegisterKey) bool {
	if l.kubelet == nil || ask.Kubelet == nil {
		return false
	}
	leaf, err := verifier.SignedByKubelet(ask.Kubelet.Certificate, ask.Kubelet.Signature,
		machinekey.Statement(got.UID, got.Thumbprint))
	return err == nil && leaf.Equal(l.kubelet)
}

func (l *listenerOf) register(w http.ResponseWriter, got *verifier.Verified, may bool) {
	if got == nil {
		return
	}
	l.registered++
	switch {
	case l.refuses != "":
		l.refuse(w, 409, l.refuses)
	case !may:
		l.refuse(w, 401, "EnrolmentFailed")
	default:
		l.knows, l.second = got.Thumbprint, false
		w.WriteHeader(http.StatusNoContent)
	}
}

// heldKeys are keys in memory.
type heldKeys struct {
	key    *machinekey.Key
	secret string
	made   int
	// kubelet is the pair of its certificate and key; nil without one. busy is the error of reading
	// it.
	kubelet []byte
	busy    error
}

func (k *heldKeys) MachineKey(context.Context) (*machinekey.Key, error) {
	if k.key == nil {
		k.made++
		k.key = machinekey.New()
	}
	return k.key, nil
}

func (k *heldKeys) SignAsKubelet(_ context.Context, statement []byte) (_, _ []byte, err error) {
	if k.kubelet == nil || k.busy != nil {
		return nil, nil, k.busy
	}
	return machinekey.SignAsKubelet(k.kubelet, statement)
}

func (k *heldKeys) BootID() (string, error) { return "AAAAAAAAAAAAAAAA", nil }

func (k *heldKeys) EnrolmentSecret() (string, error) { return k.secret, nil }

// machineAt is a node that asks a provider's own listener. Without an identity there is no token of
// Azure.
func machineAt(l *listenerOf, keys *heldKeys, identity bool) *Resource {
	client := NewClient(nil, nil)
	client.Transport = roundTrip{l}
	return &Resource{
		Client: client, Endpoint: listenerURL, ID: nodeID, UID: nodeUID, Signer: &Signer{Keys: keys},
		Token: func(context.Context) (string, error) {
			if identity {
				return "azure", nil
			}
			return "", errors.New("there is no identity")
		},
	}
}

// A machine registers its key at its first contact, by the secret of its bundle or by its identity,
// and asks with it from then on.
func TestMachineRegisters(t *testing.T) {
	for name, tt := range map[string]struct {
		secret, enrols string
		identity, good bool
	}{
		"with a secret":                       {"s", "s", false, true},
		"with a secret, and an identity":      {"s", "s", true, true},
		"with an identity":                    {"", "", true, true},
		"with a used secret, and an identity": {"s", "", true, false},
		"with a used secret":                  {"s", "", false, false},
		"with nothing":                        {"", "s", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			l, keys := &listenerOf{t: t, enrols: tt.enrols}, &heldKeys{secret: tt.secret}
			r := machineAt(l, keys, tt.identity)
			_, err := r.Poll(t.Context(), "", 0)
			if (err == nil) != tt.good {
				t.Fatalf("got %v", err)
			}
			if !tt.good {
				if !strings.Contains(err.Error(), "cannot register the machine's key") {
					t.Errorf("got %v", err)
				}
				if slices.Contains(l.tokens, "azure") {
					t.Error("the provider was shown a token of Azure")
				}
				return
			}
			before := l.registered
			for range 2 {
				if err := r.Report(t.Context(), agentapi.Report{}); err != nil {
					t.Error(err)
				}
			}
			if l.registered != before || keys.made != 1 || l.knows != keys.key.Thumbprint() {
				t.Errorf("registered %d times, then %d; %d keys", before, l.registered, keys.made)
			}
		})
	}
}

// The token of polls is used until shortly before it ends; every other request has one of its own.
func TestMachineTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := &heldKeys{secret: "s"}
		l := &listenerOf{t: t, enrols: "s"}
		r := machineAt(l, keys, false)
		poll := func() string {
			t.Helper()
			if _, err := r.Poll(t.Context(), "", 0); err != nil {
				t.Fatal(err)
			}
			return l.tokens[len(l.tokens)-1]
		}
		first := poll()
		time.Sleep(3 * time.Minute)
		if poll() != first {
			t.Error("another token after three minutes")
		}
		time.Sleep(time.Minute + time.Second)
		if poll() == first {
			t.Error("the same token after four minutes")
		}
		l.tokens = nil
		for range 2 {
			if err := r.Report(t.Context(), agentapi.Report{}); err != nil {
				t.Error(err)
			}
		}
		if len(l.tokens) != 2 || l.tokens[0] == l.tokens[1] {
			t.Errorf("two reports have the tokens %q", l.tokens)
		}
	})
}

// A machine whose clock is wrong asks again with the provider's nonce, and then at once with it.
func TestMachineWithAnotherClock(t *testing.T) {
	l := &listenerOf{t: t, enrols: "s", ahead: -time.Hour}
	r := machineAt(l, &heldKeys{secret: "s"}, false)
	for want := range 2 {
		l.tokens = nil
		if _, err := r.Poll(t.Context(), "", 0); err != nil {
			t.Fatal(err)
		}
		if got := len(l.tokens); want == 1 && got != 1 {
			t.Errorf("%d requests for a poll", got)
		}
	}
}

// A machine that another one has replaced is refused, before it joins.
func TestProveSecondMachine(t *testing.T) {
	l := &listenerOf{t: t, refuses: secondMachine}
	var c config.Config
	c.ContinuousMonitoring, c.Agent.Monitoring.Endpoint = true, listenerURL
	prove := func() error { return Prove(t.Context(), questionTo(l, &heldKeys{secret: "s"}, c)) }
	if err := prove(); transition.Of(err).Kind != transition.Refused {
		t.Errorf("a second machine: %v", err)
	}
	l.refuses, l.enrols = "", "s"
	if err := prove(); err != nil || l.knows == "" {
		t.Errorf("the machine: %v", err)
	}
}

// questionTo asks a provider as a machine whose secret registers its key.
func questionTo(l *listenerOf, keys Keys, c config.Config) Question {
	return Question{
		Resource: Resource{ID: nodeID, UID: nodeUID}, Ways: []Manner{MannerOf(c)},
		Client: func(config.Config) *http.Client {
			client := NewClient(nil, nil)
			client.Transport = roundTrip{l}
			return client
		},
		Identity: func(config.Config) (identity.Credential, error) { return token("azure"), nil },
		Keys:     keys, Alive: func() {},
	}
}

// A machine says which identity it joins with in a request that it signs, and shows no token of it.
func TestIntroduce(t *testing.T) {
	l := &listenerOf{t: t, enrols: "s"}
	var c config.Config
	c.ContinuousMonitoring, c.Agent.Monitoring.Endpoint = true, listenerURL
	const principal = "cccccccc-0000-0000-0000-000000000001"
	q := questionTo(l, &heldKeys{secret: "s"}, c)
	if err := Introduce(t.Context(), q, principal); err != nil || l.principal != principal {
		t.Errorf("%v; the provider has heard of %q", err, l.principal)
	}
	if slices.Contains(l.tokens, "azure") {
		t.Error("the provider was shown a token of Azure")
	}
}

// A provider that was restored from a backup takes the word of the node's kubelet for the machine.
func TestRestoredProviderAsksKubelet(t *testing.T) {
	pair, leaf := machinekeytest.NewCA().Kubelet("n", false)
	keys := &heldKeys{secret: "s"}
	l := &listenerOf{t: t, enrols: "s", kubelet: leaf}
	r := machineAt(l, keys, false)
	poll := func() error {
		_, err := r.Poll(t.Context(), "", 0)
		return err
	}
	if err := poll(); err != nil {
		t.Fatal(err)
	}
	l.knows, l.enrols = "", "" // as in the backup
	if err := poll(); err == nil {
		t.Error("without a certificate of kubelet's")
	}
	for name, bad := range map[string][]byte{"no pair": []byte("x"), "nothing": {}} {
		if keys.kubelet = bad; poll() == nil {
			t.Errorf("with %s for a certificate", name)
		}
	}
	keys.kubelet = pair
	if err := poll(); err != nil || l.knows != keys.key.Thumbprint() {
		t.Errorf("with kubelet's certificate: %v", err)
	}
}

// A machine that is refused beside another one goes on when its bundle has a secret by which the
// owner confirms it, and says that it is refused otherwise.
func TestSecondMachineIsConfirmed(t *testing.T) {
	keys := &heldKeys{secret: "s"}
	l := &listenerOf{t: t, enrols: "s"}
	r := machineAt(l, keys, false)
	if _, err := r.Poll(t.Context(), "", 0); err != nil {
		t.Fatal(err)
	}
	l.second, l.refuses = true, secondMachine
	if _, err := r.Poll(t.Context(), "", 0); !IsSecond(err) {
		t.Errorf("the refused machine: %v", err)
	}
	l.refuses = ""
	if _, err := r.Poll(t.Context(), "", 0); err != nil || l.second {
		t.Errorf("the confirmed machine: %v", err)
	}
}

// No other server than Resource Manager is shown a token for Resource Manager.
func TestScope(t *testing.T) {
	for endpoint, want := range map[[2]string]string{
		{"", "api://x"}:                     "https://arm.example/.default",
		{config.ResourceManager, "api://x"}: "https://arm.example/.default",
		{listenerURL, "api://x"}:            "api://x/.default",
		{listenerURL, ""}:                   "",
	} {
		var c config.Config
		c.Azure.ResourceManagerEndpoint = "https://arm.example"
		c.Agent.Monitoring.Endpoint, c.Agent.Monitoring.Audience = endpoint[0], endpoint[1]
		got, err := Scope(c)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %s, %v", endpoint, got, err)
		}
	}
}

// Only a provider's own listener is asked with the key.
func TestMannerOfEndpoint(t *testing.T) {
	for endpoint, signs := range map[string]bool{
		"": false, config.ResourceManager: false, listenerURL: true,
	} {
		var c config.Config
		c.ContinuousMonitoring, c.Agent.Monitoring.Endpoint = true, endpoint
		c.Azure.ResourceManagerEndpoint = "https://arm.example"
		m := MannerOf(c)
		if m.Signs != signs || !signs && m.Endpoint != "https://arm.example" ||
			signs && m.Endpoint != listenerURL {
			t.Errorf("%q: %+v", endpoint, m)
		}
	}
}

// To introduce a machine takes no longer than a worker of the service may be silent, also where
// each answer is slow.
func TestIntroduceIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = 29 * time.Second
		l := &listenerOf{t: t, enrols: "s"}
		slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(pause)
			l.ServeHTTP(w, r)
		})
		var c config.Config
		c.ContinuousMonitoring, c.Agent.Monitoring.Endpoint = true, listenerURL
		q := questionTo(l, &heldKeys{secret: "s"}, c)
		client := &http.Client{Transport: roundTrip{slow}}
		q.Client = func(config.Config) *http.Client { return client }
		began := time.Now()
		err := Introduce(t.Context(), q, "cccccccc-0000-0000-0000-000000000001")
		if took := time.Since(began); err == nil || took > beginLimit+pause {
			t.Errorf("it takes %s: %v", took, err)
		}
	})
}

// A large answer to the provider has the time that a slow line needs for it.
func TestDiagnosedHasTime(t *testing.T) {
	var within time.Duration
	heard := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		until, _ := r.Context().Deadline()
		within = time.Until(until)
		w.WriteHeader(http.StatusNoContent)
	})
	r := &Resource{
		Endpoint: listenerURL, ID: nodeID, Client: &http.Client{Transport: roundTrip{heard}},
		Token: func(context.Context) (string, error) { return "t", nil },
	}
	for size, least := range map[int]time.Duration{0: 0, 768 << 10: 2 * time.Minute} {
		d := agentapi.Diagnosed{SupportBundle: make([]byte, size)}
		if err := r.Diagnosed(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if within < least || size == 0 && within > 31*time.Second {
			t.Errorf("%d bytes have %s", size, within)
		}
	}
}

// A machine whose kubelet's certificate cannot be read now registers later: without that proof the
// provider would revoke the certificate.
func TestRegistersWithItsKubelet(t *testing.T) {
	busy := errors.New("too many open files")
	l, keys := &listenerOf{t: t, enrols: "s"}, &heldKeys{secret: "s", busy: busy}
	r := machineAt(l, keys, false)
	if _, err := r.Poll(t.Context(), "", 0); !errors.Is(err, busy) || l.registered > 0 {
		t.Errorf("%v, %d registrations", err, l.registered)
	}
	keys.busy = nil
	if _, err := r.Poll(t.Context(), "", 0); err != nil || l.registered != 1 {
		t.Errorf("%v, %d registrations", err, l.registered)
	}
}

// The library finds out once where a managed identity's tokens come from. A service that polls
// before the Arc agent is installed gets one afterwards all the same.
func TestTokenOfALaterIdentity(t *testing.T) {
	arc := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"access_token":"later","expires_in":"3600"}`))
	}))
	t.Cleanup(arc.Close)
	var c config.Config
	c.Azure.ManagedIdentity = &config.ManagedIdentity{}
	c.Azure.ResourceManagerEndpoint = "https://arm.example"
	tokens := &Tokens{Identity: NodeIdentity}
	early, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := tokens.Token(early, c); err == nil {
		t.Fatalf("it has the token %q without an identity", got)
	}
	t.Setenv("IDENTITY_ENDPOINT", arc.URL)
	t.Setenv("IDENTITY_HEADER", "of the test")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if got, err := tokens.Token(ctx, c); err != nil || got != "later" {
		t.Errorf("%q, %v", got, err)
	}
}
