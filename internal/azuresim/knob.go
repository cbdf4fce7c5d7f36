package azuresim

import (
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Service is a part of Azure that can fail on its own.
type Service string

// The services.
const (
	Entra    Service = "entra"
	ARM      Service = "arm"
	Webhook  Service = "webhook"
	HIMDS    Service = "himds"
	IMDS     Service = "imds"
	Registry Service = "registry"
)

// Knobs make Azure slow, late or broken. Durations are in nanoseconds in JSON.
type Knobs struct {
	// TokenLifetime is the lifetime of tokens; 0 means an hour.
	TokenLifetime time.Duration `json:"tokenLifetime,omitempty"`
	// Skew is the time by which Azure's clock is ahead.
	Skew time.Duration `json:"skew,omitempty"`
	// Replication is the time until role assignments can name a new principal (PrincipalNotFound).
	Replication time.Duration `json:"replication,omitempty"`
	// Propagation is the time until a new role assignment takes effect.
	Propagation time.Duration `json:"propagation,omitempty"`
	// OperationTime is the duration of a long-running operation.
	OperationTime time.Duration `json:"operationTime,omitempty"`
	// Faults are the faults of single services.
	Faults map[Service]Fault `json:"faults,omitempty"`
}

// Fault describes how a service misbehaves.
type Fault struct {
	// Latency delays every response.
	Latency time.Duration `json:"latency,omitempty"`
	// Status is returned in place of the real response, with RetryAfter in seconds if it is not 0.
	Status     int `json:"status,omitempty"`
	RetryAfter int `json:"retryAfter,omitempty"`
	// HTML returns a page, as a captive portal does.
	HTML bool `json:"html,omitempty"`
	// Outage closes the connection.
	Outage bool `json:"outage,omitempty"`
	// Match limits the fault to requests whose path contains it, ignoring case.
	Match string `json:"match,omitempty"`
	// Times limits the fault to this number of requests; 0 means all.
	Times int `json:"times,omitempty"`
}

// Adjust changes the knobs of all clients that have none of their own.
func (s *Sim) Adjust(f func(*Knobs)) { s.AdjustFor("", f) }

// AdjustFor changes the knobs of the client at an address, which replace those for all clients:
// lifetime and skew of its tokens, and faults. Delays apply to all clients; the longest wins.
func (s *Sim) AdjustFor(client string, f func(*Knobs)) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.knobs[client]
	f(&k)
	s.knobs[client] = k
}

// clientOf returns the address of a request's client.
func clientOf(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return host
}

// knobsOf returns the key of the knobs that apply to a request.
func (s *Sim) knobsOf(r *http.Request) string {
	if _, own := s.knobs[clientOf(r)]; own {
		return clientOf(r)
	}
	return ""
}

// operationTime returns the duration of a long-running operation.
func (s *Sim) operationTime() time.Duration {
	return s.delay(func(k Knobs) time.Duration { return k.OperationTime })
}

// delay returns the maximum of a delay over all knobs.
func (s *Sim) delay(of func(Knobs) time.Duration) (longest time.Duration) {
	for _, k := range s.knobs {
		longest = max(longest, of(k))
	}
	return longest
}

// hit is the key of a request count.
type hit struct {
	service Service
	client  string
}

// Requests returns the number of requests that a service has received.
func (s *Sim) Requests(of Service) int { return s.requests("")[of] }

// requests returns the number of requests to each service from a client, or from all for "".
func (s *Sim) requests(client string) map[Service]int {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[Service]int{}
	for h, n := range s.hits {
		if client == "" || h.client == client {
			counts[h.service] += n
		}
	}
	return counts
}

// fault counts a request and applies the service's fault. It reports whether it has responded.
func (s *Sim) fault(service Service, w http.ResponseWriter, r *http.Request) bool {
	s.mu.Lock()
	s.hits[hit{service, clientOf(r)}]++
	faults := s.knobs[s.knobsOf(r)].Faults
	f, there := faults[service]
	if there && !strings.Contains(strings.ToLower(r.URL.Path), strings.ToLower(f.Match)) {
		there = false
	}
	if there && f.Times > 0 {
		if left := f; left.Times > 1 {
			left.Times--
			faults[service] = left
		} else {
			delete(faults, service)
		}
	}
	s.mu.Unlock()
	return there && f.answer(w, r)
}

func (f Fault) answer(w http.ResponseWriter, r *http.Request) bool {
	if f.Latency > 0 {
		select {
		case <-r.Context().Done():
		case <-time.After(f.Latency):
		}
	}
	switch {
	case f.Outage:
		panic(http.ErrAbortHandler)
	case f.HTML:
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!DOCTYPE html><html><body>Please sign in to the " +
			"network</body></html>"))
	case f.Status != 0:
		if f.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(f.Status)
		_, _ = w.Write([]byte(`{"error":{"code":"` +
			strings.ReplaceAll(http.StatusText(f.Status), " ", "") +
			`","message":"The service has a problem."}}`))
	default:
		return false
	}
	return true
}

// Control returns the handler of the control API: knobs (GET, PUT /knobs?client=ADDRESS; without a
// client those for all), request counts (GET /requests?client=ADDRESS), identities and their rights
// (PUT /applications; GET, PUT, DELETE /assignments; GET /machines; POST /approve), and resources
// (PUT /subscriptions, /clusters). It has no authentication: serve it on loopback only.
func (s *Sim) Control() http.Handler {
	s.start()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /knobs", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(s.knobs[r.URL.Query().Get("client")])
	})
	mux.HandleFunc("PUT /knobs", func(w http.ResponseWriter, r *http.Request) {
		var k Knobs
		if err := json.NewDecoder(r.Body).Decode(&k); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.AdjustFor(r.URL.Query().Get("client"), func(now *Knobs) { *now = k })
	})
	mux.HandleFunc("GET /requests", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(s.requests(r.URL.Query().Get("client")))
	})
	mux.HandleFunc("PUT /applications", func(w http.ResponseWriter, r *http.Request) {
		var a Application
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.AddApplication(a)
	})
	mux.HandleFunc("PUT /subscriptions", func(w http.ResponseWriter, r *http.Request) {
		var sub Subscription
		if err := json.NewDecoder(r.Body).Decode(&sub); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.AddSubscription(sub)
	})
	mux.HandleFunc("PUT /clusters", func(w http.ResponseWriter, r *http.Request) {
		var k Cluster
		if err := json.NewDecoder(r.Body).Decode(&k); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.AddCluster(k)
	})
	mux.HandleFunc("PUT /assignments", func(w http.ResponseWriter, r *http.Request) {
		var a Assignment
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.Assign(a)
	})
	mux.HandleFunc("DELETE /assignments", func(_ http.ResponseWriter, r *http.Request) {
		s.Revoke(r.URL.Query().Get("principal"))
	})
	mux.HandleFunc("GET /assignments", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(s.Assignments())
	})
	mux.HandleFunc("GET /machines", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(s.Machines())
	})
	mux.HandleFunc("POST /approve", func(w http.ResponseWriter, r *http.Request) {
		if !s.Approve(r.URL.Query().Get("code"), r.URL.Query().Get("user")) {
			http.Error(w, "there is no such code or user", http.StatusNotFound)
		}
	})
	return mux
}
