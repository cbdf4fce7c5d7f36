// Package azuresim is a simulated Azure that speaks the real protocols: Entra ID and Azure Resource
// Manager on one origin, the metadata services of a machine, and the webhook with which Azure RBAC
// authorizes Kubernetes requests. Each is an http.Handler whose zero value works; tests use them in
// process, cmd/azuresim serves them.
//
// It shares no code with the agent, so that a wrong assumption about Azure is not made on both
// sides. Its responses follow Azure's documentation and what Azure's SDKs and the az CLI accept.
package azuresim

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Sim is a simulated Azure. The zero value has the default tenant and no resources; Load adds them.
// Close stops deployments in the background.
type Sim struct {
	// Now returns the time; nil means time.Now.
	Now func() time.Time
	// Log receives every request, without secrets; nil logs nothing.
	Log *slog.Logger
	// Provider serves the resource types that this Azure does not; nil for none.
	Provider *Provider
	// Images serves the registry's content to callers that may pull from it; nil for no registry.
	Images http.Handler

	once  sync.Once
	mu    sync.Mutex
	knobs map[string]Knobs // by client's address; "" for all
	hits  map[hit]int
	key   *rsa.PrivateKey
	world World
	// made holds the creation times of principals and role assignments; replication and propagation
	// start from there.
	made       map[string]time.Time
	resources  map[string]map[string]any // by key of their id
	operations map[string]operation
	logins     map[string]*login
	sessions   map[string]string      // refresh token -> object id of the user
	turn       int                    // of the provider's replicas
	deployed   map[string]*deployment // by key of their id
	results    []result               // of operations, the newest last
	// background waits for running deployments; life ends them
	background sync.WaitGroup
	life       context.Context
	end        context.CancelFunc
}

// signingKey generates the key that all Sims of a process share, because it takes long.
var signingKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic("internal error: no randomness: " + err.Error())
	}
	return key
})

func (s *Sim) start() {
	s.once.Do(func() {
		s.key = signingKey()
		s.knobs, s.hits, s.made = map[string]Knobs{}, map[hit]int{}, map[string]time.Time{}
		s.resources, s.operations = map[string]map[string]any{}, map[string]operation{}
		s.logins, s.sessions = map[string]*login{}, map[string]string{}
		s.deployed = map[string]*deployment{}
		s.life, s.end = context.WithCancel(context.Background())
		if s.world.TenantID == "" {
			s.world.TenantID = DefaultTenant
		}
	})
}

// Close cancels running deployments and waits for them.
func (s *Sim) Close() {
	s.start()
	s.mu.Lock()
	s.end()
	s.mu.Unlock()
	s.background.Wait()
}

func (s *Sim) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

// origin returns the URL at which the client has reached us; every service has the same.
func origin(r *http.Request) string { return "https://" + r.Host }

// ServeHTTP serves both login.microsoftonline.com and management.azure.com; the path decides.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.start()
	service, handler := s.route(r)
	if s.Log != nil {
		s.Log.Info("request", "service", service, "method", r.Method, "path", r.URL.Path)
	}
	if s.fault(service, w, r) {
		return
	}
	handler(w, r)
}

func (s *Sim) route(r *http.Request) (Service, http.HandlerFunc) {
	path := strings.ToLower(r.URL.Path)
	for _, prefix := range []string{"/subscriptions", "/providers", "/tenants", "/metadata/"} {
		if strings.HasPrefix(path, prefix) {
			return ARM, s.serveARM
		}
	}
	if path == exchangePath || path == pullPath || strings.HasPrefix(path, "/v2/") {
		return Registry, s.serveRegistry
	}
	if strings.HasPrefix(path, authorizePath) {
		return Webhook, s.authorizeKubernetes
	}
	return Entra, s.serveEntra
}
