package mirror

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/time/rate"
)

// response sends a body at the mirror's speed and applies the request's fault.
type response struct {
	http.ResponseWriter
	ctx    context.Context
	mirror *Mirror
	path   string
	fault  Fault
	// replaced ends a stall: it is closed when the fault's knobs are replaced.
	replaced <-chan struct{}
	drip     *rate.Limiter
	sent     int64
}

// WriteHeader removes the header Accept-Ranges of http.ServeContent for NoRange.
func (w *response) WriteHeader(status int) {
	if w.fault.Kind == NoRange {
		w.Header().Del("Accept-Ranges")
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write sends p in pieces small enough for smooth limits and counts.
func (w *response) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		if w.sent == w.fault.After {
			w.strike()
		}
		n, err := w.piece(p[done:])
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// strike applies a fault between two bytes.
func (w *response) strike() {
	switch w.fault.Kind {
	case Cut:
		w.flush()
		panic(http.ErrAbortHandler)
	case Stall:
		w.flush()
		w.stall()
		panic(http.ErrAbortHandler)
	}
}

// flush sends what has been written; it fails if the client has gone.
func (w *response) flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// piece sends the beginning of p, up to the fault's position.
func (w *response) piece(p []byte) (int, error) {
	limits := []*rate.Limiter{w.mirror.limiter(), w.drip}
	n := min(len(p), 64<<10)
	for _, l := range limits {
		if l != nil {
			n = min(n, l.Burst())
		}
	}
	if left := w.fault.After - w.sent; left > 0 {
		n = int(min(int64(n), left))
	}
	for _, l := range limits {
		if l == nil {
			continue
		}
		if err := l.WaitN(w.ctx, n); err != nil {
			return 0, err
		}
	}
	part := p[:n]
	if w.fault.Kind == Corrupt && w.sent == w.fault.After {
		part = append([]byte(nil), part...)
		part[0] ^= 0xff
	}
	n, err := w.ResponseWriter.Write(part)
	w.sent += int64(n)
	w.mirror.countBytes(w.path, n)
	if err == nil && w.drip != nil {
		w.flush()
	}
	return n, err
}

// newLimiter returns a limiter with bursts of a fiftieth of a second: short enough to be smooth,
// long enough for the clock. It returns nil without a limit.
func newLimiter(bytesPerSecond int64) *rate.Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(bytesPerSecond), int(min(max(bytesPerSecond/50, 1), 64<<10)))
}

// stall waits until the client closes the connection or the knobs change, or longer than any client
// waits.
func (w *response) stall() {
	ctx, cancel := context.WithTimeout(w.ctx, 10*time.Minute)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-w.replaced:
	}
}
