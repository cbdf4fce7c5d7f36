package azuresim

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Service is a part of Azure that can fail by itself.
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
	// TokenLifetime is the validity of tokens; 0 is an hour.
	TokenLifetime time.Duration `json:"tokenLifetime,omitempty"`
	// Skew is the time by which Azure's clock is ahead of all others.
	Skew time.Duration `json:"skew,omitempty"`
	// Replication is the time until role assignments know a new principal (PrincipalNotFound).
	Replication time.Duration `json:"replication,omitempty"`
	// Propagation is the time until a new role assignment has an effect.
	Propagation time.Duration `json:"propagation,omitempty"`
	// OperationTime is the duration of a long-running operation.
	OperationTime time.Duration `json:"operationTime,omitempty"`
	// Faults break single services.
	Faults map[Service]Fault `json:"faults,omitempty"`
}

// Fault describes how a service misbehaves.
type Fault struct {
	// Latency comes before every answer.
	Latency time.Duration `json:"latency,omitempty"`
	// Status is answered instead, with RetryAfter seconds if that is not 0.
	Status     int `json:"status,omitempty"`
	RetryAfter int `json:"retryAfter,omitempty"`
	// HTML answers with a page, as a captive portal does.
	HTML bool `json:"html,omitempty"`
	// Outage closes the connection.
	Outage bool `json:"outage,omitempty"`
	// Match limits the fault to requests whose path has this part; case is ignored.
	Match string `json:"match,omitempty"`
	// Times limits the fault to so many requests; 0 means all.
	Times int `json:"times,omitempty"`
}

// Adjust changes the knobs.
func (s *Sim) Adjust(f func(*Knobs)) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.knobs)
}

// Requests returns how many requests a service has received.
func (s *Sim) Requests(of Service) int {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits[of]
}

// fault counts a request and answers it wrongly, if it is to be; true if it did.
func (s *Sim) fault(service Service, w http.ResponseWriter, r *http.Request) bool {
	s.mu.Lock()
	s.hits[service]++
	f, there := s.knobs.Faults[service]
	if there && !strings.Contains(strings.ToLower(r.URL.Path), strings.ToLower(f.Match)) {
		there = false
	}
	if there && f.Times > 0 {
		if left := f; left.Times > 1 {
			left.Times--
			s.knobs.Faults[service] = left
		} else {
			delete(s.knobs.Faults, service)
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

// Control is the handler by which a program is steered: its knobs (GET, PUT /knobs), what it has
// seen (GET /requests), who there is and what they may (PUT /applications; GET, PUT, DELETE
// /assignments; GET /machines; POST /approve), and what there is (PUT /subscriptions, /clusters). It has no
// authentication: it belongs on loopback.
func (s *Sim) Control() http.Handler {
	s.start()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /knobs", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(s.knobs)
	})
	mux.HandleFunc("PUT /knobs", func(w http.ResponseWriter, r *http.Request) {
		var k Knobs
		if err := json.NewDecoder(r.Body).Decode(&k); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.Adjust(func(now *Knobs) { *now = k })
	})
	mux.HandleFunc("GET /requests", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(s.hits)
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
