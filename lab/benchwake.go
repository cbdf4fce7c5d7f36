package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/AKSFlexNode/lab/load"
)

// changeRate is the number of nodes changed per second while their agents wait.
const changeRate = 300

// Waiting holds agents that wait for a change, each in its own poll.
type Waiting struct {
	b     *ProviderBench
	fleet *load.Fleet
	done  sync.WaitGroup
	stop  context.CancelFunc
	errs  []error
	woken []time.Time
	again atomic.Int64 // polls that ended without a change
}

// Woken holds 99th percentiles of the time until a waiting agent has its change.
type Woken struct {
	// Stored is measured from the response to the change, which was stored by then; 0 if the agent had
	// it before. Sent is measured from the request.
	Stored, Sent time.Duration
	// Again is the number of polls that ended without a change and were repeated. They end together,
	// as they began, and delay an agent that is woken then.
	Again int
}

// Wait starts a waiting poll of every agent of a fleet, and returns when all wait.
func (b *ProviderBench) Wait(ctx context.Context, fleet *load.Fleet) (*Waiting, error) {
	agents := fleet.Agents()
	waiting, stop := context.WithCancel(ctx)
	w := &Waiting{
		b: b, fleet: fleet, stop: stop, errs: make([]error, agents),
		woken: make([]time.Time, agents),
	}
	for n := range agents {
		w.done.Go(func() { w.errs[n] = w.agent(waiting, n) })
	}
	err := until(ctx, time.Minute, "the agents to wait", func() error {
		text, err := fetch(ctx, ProviderMetrics(0)+"/metrics")
		if err != nil {
			return err
		}
		if n := metric(text, "flexnode_rp_waiting_polls"); int(n) < agents {
			return fmt.Errorf("%.0f of %d wait", n, agents)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, w.End())
	}
	return w, nil
}

// End ends all polls.
func (w *Waiting) End() error {
	w.stop()
	w.done.Wait()
	return errors.Join(slices.Compact(w.errs)...)
}

// agent polls until its node has changed or ctx ends.
func (w *Waiting) agent(ctx context.Context, n int) error {
	for {
		r, err := w.b.poll(ctx, n)
		if err != nil {
			return err
		}
		r.Header.Set("Prefer", "wait=50")
		status, header, err := w.fleet.Do(n, r)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case status == http.StatusOK:
			w.woken[n], w.b.etags[n] = time.Now(), header.Get("ETag")
			if !pending(w.b.etags[n]) {
				return nil
			}
			continue
		case status != http.StatusNotModified:
			return fmt.Errorf("a poll that waits: %d", status)
		}
		w.again.Add(1)
	}
}

// pending reports whether a node's desired revision is not assigned yet; its ETag then has both
// revisions.
func pending(etag string) bool { return strings.Count(etag, "-") > 1 }

// Wake changes the node of every agent and waits until all agents have the change.
func (w *Waiting) Wake(ctx context.Context) (Woken, error) {
	token, err := w.b.lab.operatorToken(ctx, ProviderURL)
	if err != nil {
		return Woken{}, err
	}
	client := &http.Client{Timeout: time.Minute,
		Transport: &http.Transport{TLSClientConfig: w.b.tls, MaxIdleConnsPerHost: pollers}}
	defer client.CloseIdleConnections()
	sent, stored := make([]time.Time, w.fleet.Agents()), make([]time.Time, w.fleet.Agents())
	errs := make([]error, pollers)
	began := time.Now()
	var changing sync.WaitGroup
	for worker := range pollers {
		changing.Go(func() {
			for n := worker; n < len(sent) && errs[worker] == nil; n += pollers {
				time.Sleep(time.Until(began.Add(time.Second * time.Duration(n) / changeRate)))
				sent[n] = time.Now()
				_, _, errs[worker] = put(ctx, client, w.b.url(n), token, benchBody(n, "factory-8"))
				stored[n] = time.Now()
			}
		})
	}
	changing.Wait()
	if err := errors.Join(errs...); err != nil {
		return Woken{}, errors.Join(err, w.End())
	}
	w.done.Wait() // an agent that was not woken polls again within a minute
	for n := range sent {
		if w.errs[n] != nil || w.woken[n].IsZero() {
			return Woken{}, fmt.Errorf("an agent was not woken: %w", w.errs[n])
		}
	}
	return Woken{after(stored, w.woken), after(sent, w.woken), int(w.again.Load())}, nil
}

// after returns the 99th percentile of the durations; negative ones count as 0.
func after(from, to []time.Time) time.Duration {
	took := make([]time.Duration, len(from))
	for n := range from {
		took[n] = max(0, to[n].Sub(from[n]))
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}
