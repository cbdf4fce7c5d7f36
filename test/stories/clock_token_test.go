package stories

import (
	"encoding/base64"
	"encoding/json"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/azuresim"
	"github.com/Azure/AKSFlexNode/internal/identity"
)

// tokenClock is a machine whose kubelet uses tokens, and whose wall clock is set. Each process that
// requests a token runs in a bubble of its own, so that it has the wall clock of that time.
type tokenClock struct {
	t     *testing.T
	world *world
	sim   *azuresim.Sim

	mu    sync.Mutex
	right time.Time // the time of the issuer and of the API server
	// ahead is the lead of the wall clock over that.
	ahead time.Duration
	// What kubelet keeps: a token, and when by the wall clock it runs the plugin again.
	shown string
	until time.Time
}

func newTokenClock(t *testing.T) *tokenClock {
	t.Helper()
	w, sim := azureWorld(t)
	m := &tokenClock{t: t, world: w, sim: sim, right: time.Now()}
	sim.Now = m.now
	sim.Adjust(func(k *azuresim.Knobs) { k.TokenLifetime = time.Hour })
	entra := httptest.NewUnstartedServer(sim)
	entra.Config.SetKeepAlivesEnabled(false) // a connection would outlive its bubble
	entra.StartTLS()
	t.Cleanup(entra.Close)
	w.cluster.issuer = entra.URL
	w.config = w.configuration(w.secret(canary, "token"))
	if _, err := w.bootstrap(); err != nil {
		t.Fatal(err)
	}
	if err := w.forgetTokens(); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *tokenClock) now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.right
}

// pass lets time pass on the right clock, the wall clock, and the boot clock. The last is the
// kernel's, so the tokens' time moves instead.
func (m *tokenClock) pass(d time.Duration) {
	m.t.Helper()
	m.mu.Lock()
	m.right = m.right.Add(d)
	m.mu.Unlock()
	for _, file := range m.world.tokens() {
		var kept identity.Token
		data, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(data, &kept)
		}
		if err == nil {
			kept.Uptime -= d
			data, err = json.Marshal(kept)
		}
		if err == nil {
			err = os.WriteFile(file, data, 0o600)
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
}

// token returns kubelet's token, as a process would get it now.
func (m *tokenClock) token() (got identity.Token, err error) {
	m.t.Helper()
	wall := m.now().Add(m.ahead)
	synctest.Test(m.t, func(t *testing.T) {
		time.Sleep(time.Until(wall))
		got, err = inspect.Token(t.Context(), &m.world.agent().Env)
	})
	return got, err
}

// left returns the remaining lifetime of a token, by the right clock.
func (m *tokenClock) left(token string) time.Duration {
	m.t.Helper()
	var claims struct {
		Ends int64 `json:"exp"`
	}
	parts := strings.Split(token, ".")
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(data, &claims)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return time.Unix(claims.Ends, 0).Sub(m.now())
}

// asks fails unless a process gets a token that is valid for a while.
func (m *tokenClock) asks() {
	m.t.Helper()
	token, err := m.token()
	if err != nil {
		m.t.Fatal(err)
	}
	if left := m.left(token.Value); left < 30*time.Second {
		m.t.Fatalf("a token that ends in %s", left)
	}
}

// kubelet makes a request to the API server, and reports whether its token was accepted. It runs
// the plugin at the time that the plugin gave, or after a token was refused (client-go).
func (m *tokenClock) kubelet() bool {
	m.t.Helper()
	if wall := m.now().Add(m.ahead); m.shown == "" || wall.After(m.until) {
		token, err := m.token()
		if err != nil {
			m.t.Fatal(err)
		}
		if left := m.left(token.Value); left < 30*time.Second {
			m.t.Fatalf("kubelet is given a token that ends in %s", left)
		}
		m.shown, m.until = token.Value, token.Refresh
	}
	if m.left(m.shown) > 0 {
		return true
	}
	m.shown = ""
	return false
}

// setting sets a clock some time after the last setting.
type setting struct{ after, by time.Duration }

// However the clock is set, no process gets an expired token. Kubelet's own cached token, by its
// earlier clock, is replaced after the first request that the API server refuses.
func TestClockAndTokens(t *testing.T) {
	t.Parallel()
	const hour, minute = time.Hour, time.Minute
	for name, tt := range map[string]struct {
		ahead time.Duration
		sets  []setting
	}{
		"three hours back after boot":      {3 * hour, []setting{{minute, -3 * hour}}},
		"three hours back before the end":  {3 * hour, []setting{{55 * minute, -3 * hour}}},
		"two hours forward":                {0, []setting{{15 * minute, 2 * hour}}},
		"two hours forward when behind":    {-2 * hour, []setting{{15 * minute, 2 * hour}}},
		"two hours forward before the end": {0, []setting{{39 * minute, 2 * hour}}},
		"a day forward and back": {0, []setting{
			{15 * minute, 24 * hour}, {10 * minute, -24 * hour},
		}},
		"back by little": {0, []setting{
			{20 * minute, -19 * minute}, {20 * minute, -20 * minute}, {20 * minute, -20 * minute},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newTokenClock(t)
			m.ahead = tt.ahead
			refused := 0
			for _, s := range tt.sets {
				refused += m.run(s.after)
				m.ahead += s.by
			}
			refused += m.run(5 * time.Hour)
			if refused > len(tt.sets) {
				t.Errorf("kubelet was refused %d times; the clock was set %d times", refused, len(tt.sets))
			}
		})
	}
}

// run lets time pass in which kubelet makes a request each minute, and other processes request a
// token every five. It returns how often kubelet was refused, which is never twice in a row.
func (m *tokenClock) run(within time.Duration) (refused int) {
	m.t.Helper()
	for past := time.Duration(0); past < within; past += time.Minute {
		if past%(5*time.Minute) == 0 {
			m.asks()
		}
		if !m.kubelet() {
			refused++
			if !m.kubelet() {
				m.t.Fatal("kubelet is refused again")
			}
		}
		m.pass(min(time.Minute, within-past))
	}
	return refused
}

// While the issuer is down, the last token is handed out until it expires, even if the wall clock
// was set back in between so that the token looks new.
func TestClockAndSilentIssuer(t *testing.T) {
	t.Parallel()
	m := newTokenClock(t)
	m.asks()
	m.pass(59 * time.Minute)
	m.ahead = -58 * time.Minute
	m.sim.Adjust(func(k *azuresim.Knobs) {
		k.Faults = map[azuresim.Service]azuresim.Fault{azuresim.Entra: {Outage: true}}
	})
	m.asks()
	for range 5 {
		m.pass(time.Minute)
		if token, err := m.token(); err == nil {
			t.Fatalf("a token that ends in %s", m.left(token.Value))
		}
	}
	m.sim.Adjust(func(k *azuresim.Knobs) { k.Faults = nil })
	m.asks()
}
