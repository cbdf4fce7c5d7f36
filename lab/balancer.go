package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// balancer passes connections on to replicas, as the load balancer in front of a provider does. TLS
// goes through it. It asks each replica whether it is ready: one that says no gets no new
// connections and keeps those that it has; one that does not answer loses them.
type balancer struct {
	replicas []balanced
	gates    *gates
	client   *http.Client

	mu    sync.Mutex
	ready []bool
	load  []int // connections passed on, or about to be, by replica
}

// balanced is a replica behind a balancer.
type balanced struct {
	name    string
	address string // host:port that connections are passed on to
	health  string // URL that says whether it is ready
}

const (
	// probeInterval is the time between the probes of a replica, probePatience the limit for one.
	probeInterval = 500 * time.Millisecond
	probePatience = 2 * time.Second
	dialPatience  = time.Second
)

func newBalancer(replicas []balanced) *balancer {
	return &balancer{
		replicas: replicas, gates: newGates(),
		ready: make([]bool, len(replicas)), load: make([]int, len(replicas)),
		client: &http.Client{Timeout: probePatience},
	}
}

// probe asks all replicas once.
func (b *balancer) probe(ctx context.Context) {
	ready, answers := make([]bool, len(b.replicas)), make([]bool, len(b.replicas))
	var asking sync.WaitGroup
	for i, r := range b.replicas {
		asking.Go(func() { answers[i], ready[i] = b.ask(ctx, r.health) })
	}
	asking.Wait()
	var gone []string
	for i, r := range b.replicas {
		if !answers[i] {
			gone = append(gone, r.name)
		}
	}
	b.mu.Lock()
	b.ready = ready
	b.mu.Unlock()
	b.gates.set(LinkStates{Cut: gone})
}

// ask reports whether a replica answers, and whether it says that it is ready.
func (b *balancer) ask(ctx context.Context, url string) (answers, ready bool) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, false
	}
	response, err := b.client.Do(r)
	if err != nil {
		return false, false
	}
	_ = response.Body.Close() // what it says more is not needed
	return true, response.StatusCode == http.StatusOK
}

// choose takes a replica for a new connection: of those that are ready and were not tried, the one
// with the fewest connections; -1 without such a replica. It counts at once, so that connections
// that come together are spread, too; release when it is over.
func (b *balancer) choose(tried map[int]bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	best := -1
	for i := range b.replicas {
		if b.ready[i] && !tried[i] && (best < 0 || b.load[i] < b.load[best]) {
			best = i
		}
	}
	if best >= 0 {
		b.load[best]++
	}
	return best
}

func (b *balancer) release(replica int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.load[replica]--
}

// pass passes a connection on to the first replica that takes it.
func (b *balancer) pass(ctx context.Context, from net.Conn) {
	defer from.Close()
	tried := map[int]bool{}
	for i := b.choose(tried); i >= 0; i = b.choose(tried) {
		tried[i] = true
		if b.passTo(ctx, i, from) {
			return
		}
	}
}

// passTo passes a connection on to a replica that was chosen; false if that does not take it.
func (b *balancer) passTo(ctx context.Context, replica int, from net.Conn) bool {
	defer b.release(replica)
	r := b.replicas[replica]
	dialer := net.Dialer{Timeout: dialPatience}
	to, err := dialer.DialContext(ctx, "tcp", r.address)
	if err != nil {
		return false
	}
	b.gates.join(ctx, r.name, from, to)
	return true
}

// serve takes connections until ctx ends.
func (b *balancer) serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		c, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("cannot take connections: %w", err)
		}
		go b.pass(ctx, c)
	}
}

// ServeBalancer is the load balancer in front of the provider's replicas, until ctx ends.
func ServeBalancer(ctx context.Context) error {
	var replicas []balanced
	for i := range maxReplicas {
		replicas = append(replicas, balanced{
			replicaName(i), strings.TrimPrefix(ReplicaURL(i), "https://"),
			ProviderMetrics(i) + "/readyz",
		})
	}
	b := newBalancer(replicas)
	b.probe(ctx)
	listener, err := net.Listen("tcp", strings.TrimPrefix(ProviderURL, "https://"))
	if err != nil {
		return fmt.Errorf("cannot be a load balancer: %w", err)
	}
	var probing sync.WaitGroup
	defer probing.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	probing.Go(func() {
		for tick := time.NewTicker(probeInterval); ctx.Err() == nil; {
			select {
			case <-ctx.Done():
				tick.Stop()
			case <-tick.C:
				b.probe(ctx)
			}
		}
	})
	return b.serve(ctx, listener)
}

// startBalancer starts the load balancer and waits until the provider is reached through it.
func (l *Lab) startBalancer(ctx context.Context) error {
	if err := l.background("balancer", l.Self, "balance"); err != nil {
		return err
	}
	client, err := l.HTTPClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	what := "the load balancer (see " + l.path("logs", "balancer.log") + ")"
	return until(ctx, time.Minute, what, func() error {
		response, err := client.Get(ProviderURL + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
}
