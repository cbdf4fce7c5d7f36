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
	// stale limits the age of the index of a ready replica, while the store answers.
	stale          = 30 * time.Second
	healthInterval = 5 * time.Second
)

// health holds the state of this replica: probes read it and never use the store.
type health struct {
	index    *store.Index
	store    *store.Store
	draining atomic.Bool
	// alive is called after each check of the store.
	alive func()

	mu    sync.Mutex
	at    time.Time // last answer of the store
	since time.Time // start of its answers; zero if it does not answer
	err   error     // the reason that it cannot be written
}

// run checks the store regularly, until ctx ends.
func (h *health) run(ctx context.Context) {
	for ctx.Err() == nil {
		h.ask(ctx)
		h.alive()
		store.Pause(ctx, healthInterval)
	}
}

func (h *health) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, healthInterval)
	defer cancel()
	now, err := h.store.Health(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at, h.err = time.Now(), err
	if err != nil {
		h.since = time.Time{}
		return
	}
	if h.since.IsZero() {
		h.since = h.at
	}
	switch {
	case now.NoRoom:
		h.err = store.ErrNoRoom
	case now.Full:
		h.err = store.ErrFull
	case now.Crowded:
		h.err = store.ErrCrowded
	}
}

// reading returns the reason that this replica answers polls and lists worse than others; nil for
// none. Its index is older than theirs if the store answers, and has for a while, but the index
// gets no changes. A store that does not answer at all is no reason: it would take out all
// replicas.
func (h *health) reading() error {
	var errs error
	h.mu.Lock()
	answers := !h.since.IsZero() && time.Since(h.since) > stale && time.Since(h.at) <= stale
	h.mu.Unlock()
	if age := h.index.Age(); answers && age > stale {
		errs = fmt.Errorf("the store has not been heard of for %s", age.Round(time.Second))
	}
	if h.draining.Load() {
		errs = errors.Join(errs, errors.New("draining"))
	}
	return errs
}

// writing returns the reason that nothing can be changed; nil if it can.
func (h *health) writing() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil && time.Since(h.at) > stale {
		return errors.New("the store does not answer")
	}
	return h.err
}

// healthPaths lists the paths that routes adds.
var healthPaths = map[string]bool{"/livez": true, "/readyz": true, "/readyz/write": true}

// routes adds the probes: whether the program runs, whether this replica can answer polls as well
// as others, and whether it can make changes. A load balancer uses only the second: problems of the
// store concern all replicas, and polls are answered from memory.
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
