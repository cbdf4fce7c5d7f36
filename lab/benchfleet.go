package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/wait"
	"github.com/Azure/AKSFlexNode/lab/load"
)

// benchReport returns a full report of an agent whose node runs a configVersion and has a changed
// file: every section, and as from real agents the conditions that are not True, and NodeReady.
func benchReport(n int, version string) ([]byte, error) {
	at := time.Date(2026, 11, 21, 8, n/60%60, n%60, 0, time.UTC)
	kernels := []string{"6.8.0-60-generic", "6.8.0-63-generic", "6.11.0-26-generic"}
	found := fmt.Sprintf("expected file 0644 sha256:%016x, found file 0644 sha256:%016x", 4711, n)
	r := api.Report{
		AppliedConfigVersion: version, LastConfigApplied: &at, AgentVersion: "v1.4.0",
		Components: &api.Components{
			Kubelet: "1.36.3", Containerd: "2.3.4", Runc: "1.4.3", CNI: "1.9.1", NPD: "1.34.0",
			Agent: "v1.4.0", Kernel: kernels[n%len(kernels)], OS: "Ubuntu 24.04.2 LTS",
		},
		Config: &api.Applied{Observed: version, Applied: version},
		Drift: &api.Drift{Policy: "report", Count: 1, LastSeen: &at, Items: []api.DriftItem{
			{Name: "file /etc/containerd/config.toml", Message: found}}},
		Conditions: []api.Condition{
			{Type: "NodeReady", Status: "True", Reason: "KubeletReady", LastTransitionTime: at},
			{Type: "HostAsConfigured", Status: "False", Reason: "Drifted",
				Message:            "1 thing is not as configured: file /etc/containerd/config.toml",
				LastTransitionTime: at.Add(time.Duration(n%900) * time.Second)},
		},
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("internal error: %w", err)
	}
	return text, nil
}

// every sends a request for each node from concurrent workers, and fails if a response has another
// status.
func (b *ProviderBench) every(
	ctx context.Context, nodes, status int, request func(n int) (*http.Request, error),
) error {
	fleet, err := b.polls().Open(ctx, pollers)
	if err != nil {
		return err
	}
	defer fleet.Close()
	var next atomic.Int64
	errs := make([]error, pollers)
	var wg sync.WaitGroup
	for worker := range pollers {
		wg.Go(func() {
			for errs[worker] == nil {
				n := int(next.Add(1)) - 1
				if n >= nodes {
					return
				}
				errs[worker] = send(ctx, fleet, worker, status, func() (*http.Request, error) {
					return request(n)
				})
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// send sends a request and fails if the response has another status. It retries after a 429.
func send(
	ctx context.Context, fleet *load.Fleet, worker, status int, request func() (*http.Request, error),
) error {
	for {
		r, err := request()
		if err != nil {
			return err
		}
		got, _, err := fleet.Do(worker, r)
		switch {
		case err != nil || got == status:
			return err
		case got != http.StatusTooManyRequests:
			return fmt.Errorf("%s %s: %d, want %d", r.Method, r.URL.Path, got, status)
		case !wait.Sleep(ctx, wait.Jitter(time.Second)):
			return ctx.Err()
		}
	}
}

// Report sends a full report of each agent.
func (b *ProviderBench) Report(ctx context.Context) error {
	return b.every(ctx, b.stored, http.StatusNoContent, func(n int) (*http.Request, error) {
		const action = "reportStatus"
		_, version, _ := strings.Cut(strings.Trim(b.etags[n], `"`), "-")
		body, err := benchReport(n, version)
		if err != nil {
			return nil, err
		}
		token, err := b.machines[n].token(action, body)
		if err != nil {
			return nil, err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost,
			ReplicaURL(0)+b.node(n)+"/"+action+"?api-version="+ProviderAPI,
			bytes.NewReader(body))
		if err == nil {
			r.Header.Set("Authorization", machinekey.Scheme+" "+token)
			r.Header.Set("Content-Type", "application/json")
		}
		return r, err
	})
}

// PollAll polls once as each agent, with its own token.
func (b *ProviderBench) PollAll(ctx context.Context) error {
	return b.every(ctx, b.stored, http.StatusNotModified, func(n int) (*http.Request, error) {
		return b.poll(ctx, n)
	})
}

// Connect opens the connections of as many agents as the load allows.
func (b *ProviderBench) Connect(ctx context.Context) (*load.Fleet, error) {
	return b.connect(ctx, min(connected, b.stored))
}

// connect opens the connections of the first agents. A connection always sends the polls of the
// same agent.
func (b *ProviderBench) connect(ctx context.Context, agents int) (*load.Fleet, error) {
	return b.agents(agents).Open(ctx, agents)
}

func (b *ProviderBench) agents(most int) load.Target {
	return load.Target{TLS: b.tls, Status: http.StatusNotModified,
		Request: func(ctx context.Context, n int) (*http.Request, error) {
			return b.poll(ctx, n%most)
		}}
}

// Latencies are 99th percentiles at a fixed rate.
type Latencies struct{ Provider, Bare time.Duration }

const (
	// paced is the duration of latency measurements, scraped the interval of reading metrics.
	// Last-seen times are written spread over five minutes, so about a dozen times during a
	// measurement.
	paced   = time.Minute
	scraped = 5 * time.Second
)

// Latency measures the 99th percentile at the rate of 100,000 nodes over 10,000 connections while
// last-seen times are stored and metrics are read, and that of the bare handler at the same rate:
// the share of the machine, TLS and the client.
func (b *ProviderBench) Latency(ctx context.Context) (got Latencies, err error) {
	connections := min(connected, b.stored)
	if got.Bare, err = b.bare().Pace(ctx, connections, fleetRate, 15*time.Second); err != nil {
		return got, err
	}
	fleet, err := b.Connect(ctx)
	if err != nil {
		return got, err
	}
	defer fleet.Close()
	scraping, stop := context.WithCancel(ctx)
	revisions := make(chan []float64)
	go func() { revisions <- scrape(scraping) }()
	got.Provider, err = fleet.Pace(ctx, fleetRate, paced)
	stop()
	if seen := <-revisions; err == nil && len(slices.Compact(seen)) < 2 {
		err = errors.New("the measurement is invalid: nothing was stored or read meanwhile")
	}
	return got, err
}

// scrape reads a provider's metrics until ctx ends, and returns the store revisions in them.
func scrape(ctx context.Context) (revisions []float64) {
	tick := time.NewTicker(scraped)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return revisions
		case <-tick.C:
			if text, err := fetch(ctx, ProviderMetrics(0)+"/metrics"); err == nil {
				revisions = append(revisions, metric(text, "flexnode_rp_index_revision"))
			}
		}
	}
}
