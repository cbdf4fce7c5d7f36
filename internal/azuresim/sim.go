// Package azuresim is a simulated Azure that speaks the real protocols: Entra ID and Azure Resource
// Manager on one origin, the metadata services of a machine, and the webhook by which Azure RBAC
// authorises in Kubernetes. Each is an http.Handler whose zero value works; tests use them in
// process, cmd/azuresim as a program.
//
// It holds no code of the agent, so that a wrong belief about Azure is not shared by both sides;
// what it answers follows Azure's documentation and what its SDKs and the az CLI accept.
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

// Sim is one simulated Azure. The zero value is an Azure with the default tenant and nothing in it;
// Load fills it. Close waits for what is done in the background.
type Sim struct {
	// Now is the clock; nil is the real one.
	Now func() time.Time
	// Log receives every request, without secrets; nil logs nothing.
	Log *slog.Logger
	// Provider serves the resource types that Azure's own providers do not; nil for none.
	Provider *Provider
	// Images serves what the registry holds, to those who may pull from it; nil for no registry.
	Images http.Handler

	once  sync.Once
	mu    sync.Mutex
	knobs map[string]Knobs // by client's address; "" for all
	hits  map[hit]int
	key   *rsa.PrivateKey
	world World
	// made is when principals and role assignments came to be: replication and propagation count
	// from there.
	made       map[string]time.Time
	resources  map[string]map[string]any // by key of their id
	operations map[string]operation
	logins     map[string]*login
	sessions   map[string]string      // refresh token -> object id of the user
	turn       int                    // of the provider's replicas
	deployed   map[string]*deployment // by key of their id
	results    []result               // of operations, the newest last
	// background is deployments that are carried out, and life their time
	background sync.WaitGroup
	life       context.Context
	end        context.CancelFunc
}

// signingKey is the key of every Sim of a process: it takes long to make.
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

// Close stops the deployments that are being carried out, and waits for their end.
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

// origin is the URL that the client has reached us at; everything is there.
func origin(r *http.Request) string { return "https://" + r.Host }

// ServeHTTP answers as login.microsoftonline.com and as management.azure.com, told apart by the
// path.
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
