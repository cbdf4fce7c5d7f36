package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

const (
	// stale is how old the index may be before this replica tells that it is not ready.
	stale = 30 * time.Second
	// healthInterval is how often the store is asked how it is.
	healthInterval = 5 * time.Second
)

// health is how this replica is. Who asks gets what is known: nothing is done in the store for it.
type health struct {
	index    *store.Index
	store    *store.Store
	draining atomic.Bool
	// alive is told, after each time that the store was asked, that the program goes on. It may be
	// nil.
	alive func()

	mu  sync.Mutex
	at  time.Time // when the store was asked last
	err error     // why it cannot be written
}

// run asks the store now and then, until ctx ends.
func (h *health) run(ctx context.Context) {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		h.ask(ctx)
		if h.alive != nil {
			h.alive()
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func (h *health) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, healthInterval)
	defer cancel()
	now, err := h.store.Health(ctx)
	switch {
	case err == nil && now.NoRoom:
		err = store.ErrNoRoom
	case err == nil && now.Full:
		err = store.ErrFull
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at, h.err = time.Now(), err
}

// reading is why polls and lists cannot be answered; nil if they can.
func (h *health) reading() error {
	var errs []error
	if age := h.index.Age(); age > stale {
		errs = append(errs, fmt.Errorf("the store has not been heard of for %s",
			age.Round(time.Second)))
	}
	if h.draining.Load() {
		errs = append(errs, errors.New("draining"))
	}
	return errors.Join(errs...)
}

// writing is why nothing can be changed; nil if it can.
func (h *health) writing() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil && time.Since(h.at) > stale {
		return errors.New("the store does not answer")
	}
	return h.err
}

// healthPaths are what routes adds.
var healthPaths = map[string]bool{"/livez": true, "/readyz": true, "/readyz/write": true}

// routes adds what probes ask for: whether the program runs, whether this replica can answer polls,
// and whether it can change something. A load balancer asks for the second only: what concerns the
// store concerns all replicas, and polls are answered from memory.
func (h *health) routes(mux *http.ServeMux) {
	answer := func(check func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := check(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		}
	}
	mux.HandleFunc("GET /livez", answer(func() error { return nil }))
	mux.HandleFunc("GET /readyz", answer(h.reading))
	mux.HandleFunc("GET /readyz/write", answer(h.writing))
}
