// Package load sends many similar requests to a server and measures its responses. Each worker has
// its own connection, as agents have. A Target is flooded with Go's HTTP client, which agents use;
// a Fleet has a client of its own that uses little CPU time, so that it measures the server.
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

// Target is a server and the requests to it.
type Target struct {
	TLS *tls.Config
	// Request returns the n-th request.
	Request func(ctx context.Context, n int) (*http.Request, error)
	// Status is the required status of responses. With Throttled, 429 is accepted too; a Fleet counts
	// it.
	Status    int
	Throttled bool
}

// errThrottled is the error of a 429 response, which a Target with Throttled accepts.
var errThrottled = errors.New("429 Too Many Requests")

// patience is the timeout of a request; a waiting poll takes most of a minute.
const patience = 75 * time.Second

// client returns a client with one HTTP/1.1 connection.
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

// judge returns an error unless a response is accepted.
func (t Target) judge(r *http.Request, status int, header http.Header) error {
	if t.Throttled && status == http.StatusTooManyRequests && header.Get("Retry-After") != "" {
		return errThrottled
	}
	if status != t.Status {
		return fmt.Errorf("%s: %d, want %d", r.URL.Path, status, t.Status)
	}
	return nil
}

// Flood sends one request after another over each connection and returns the number of responses
// per second. The first quarter of the time is not counted.
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

// flood runs workers, each of which calls ask repeatedly, and returns the number of calls per
// second. The first quarter of the time is not counted.
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

// Pace opens a fleet and sends requests at a fixed rate (Fleet.Pace).
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

// Stampede sends a request of each agent at once, each over a new connection. It returns the number
// of failures, the total time and the last error.
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
