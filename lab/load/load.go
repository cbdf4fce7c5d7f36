// Package load sends many equal requests to a server and measures how it answers. Each worker has a
// connection of its own, as agents have. A Target is flooded with the client that agents have,
// Go's; a Fleet has one that costs little, so that what is measured is the server.
package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Target describes a server and the requests to it.
type Target struct {
	TLS *tls.Config
	// Request makes the n-th request.
	Request func(ctx context.Context, n int) (*http.Request, error)
	// Status is the required status of an answer; with Throttled also 429, which a Fleet counts.
	Status    int
	Throttled bool
}

// errThrottled is the answer to one that asks too much: no failure of a target that is Throttled.
var errThrottled = errors.New("429 Too Many Requests")

// patience is the limit for an answer: a poll that waits gets none for most of a minute.
const patience = 75 * time.Second

// client has one connection, HTTP/1.1.
func (t Target) client() *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		TLSClientConfig: t.TLS.Clone(), MaxConnsPerHost: 1,
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}}
}

func (t Target) ask(ctx context.Context, c *http.Client, n int) error {
	r, err := t.Request(ctx, n)
	if err != nil {
		return err
	}
	response, err := c.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	return t.judge(r, response.StatusCode, response.Header)
}

// judge reports whether an answer is as it must be.
func (t Target) judge(r *http.Request, status int, header http.Header) error {
	if t.Throttled && status == http.StatusTooManyRequests && header.Get("Retry-After") != "" {
		return errThrottled
	}
	if status != t.Status {
		return fmt.Errorf("%s: %d, want %d", r.URL.Path, status, t.Status)
	}
	return nil
}

// Flood sends as many requests as the server answers over so many connections, and returns how many
// it answered in a second. The first quarter of the time is not counted.
func (t Target) Flood(ctx context.Context, connections int, during time.Duration) (float64, error) {
	clients := make([]*http.Client, connections)
	for i := range clients {
		clients[i] = t.client()
		defer clients[i].CloseIdleConnections()
	}
	return flood(connections, during, func(worker, n int) error {
		return t.ask(ctx, clients[worker], n)
	})
}

// flood has workers ask again and again, each when it has been answered, and returns how many were
// answered in a second. The first quarter of the time is not counted.
func flood(
	workers int, during time.Duration, ask func(worker, n int) error,
) (float64, error) {
	warm := time.Now().Add(during / 4)
	end := warm.Add(during)
	counts := make([]int, workers)
	err := each(workers, func(worker int) error {
		for n := worker; ; n += workers {
			if err := ask(worker, n); err != nil {
				return err
			}
			now := time.Now()
			if now.After(end) {
				return nil
			}
			if now.After(warm) {
				counts[worker]++
			}
		}
	})
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / during.Seconds(), err
}

// Pace has so many agents send so many requests in a second (Fleet.Pace).
func (t Target) Pace(
	ctx context.Context, connections int, perSecond float64, during time.Duration,
) (time.Duration, error) {
	f, err := t.Open(ctx, connections)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.Pace(ctx, perSecond, during)
}

// Stampede has so many agents come at once, each over a new connection, and returns how many were
// not answered, and how long all of it took.
func (t Target) Stampede(
	ctx context.Context, agents int,
) (failed int, took time.Duration, last error) {
	began := time.Now()
	var mu sync.Mutex
	err := each(agents, func(n int) error {
		c := t.client()
		defer c.CloseIdleConnections()
		if err := t.ask(ctx, c, n); err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed++
			last = err
		}
		return nil
	})
	return failed, time.Since(began), errors.Join(err, last)
}

// each runs workers and waits for them.
func each(workers int, work func(int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for i := range workers {
		wg.Go(func() { errs[i] = work(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
