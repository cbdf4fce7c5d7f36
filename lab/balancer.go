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

// balancer is the TCP load balancer in front of the provider's replicas; TLS passes through. It
// probes each replica: one that is not ready gets no new connections but keeps its own; one that
// does not respond loses them.
type balancer struct {
	replicas []balanced
	gates    *gates
	client   *http.Client

	mu    sync.Mutex
	ready []bool
	load  []int // connections per replica, also those being opened
}

// balanced is a replica behind a balancer.
type balanced struct {
	name    string
	address string // host:port to connect to
	health  string // URL of the readiness probe
}

const (
	// probeInterval is the time between probes, probePatience the timeout of one.
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

// probe probes all replicas once.
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

// ask reports whether a replica responds, and whether it is ready.
func (b *balancer) ask(ctx context.Context, url string) (answers, ready bool) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, false
	}
	response, err := b.client.Do(r)
	if err != nil {
		return false, false
	}
	_ = response.Body.Close() // only the status matters
	return true, response.StatusCode == http.StatusOK
}

// choose returns the ready replica with the fewest connections that was not tried, or -1. It counts
// the connection at once, so that concurrent connections are spread too; release ends it.
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

// pass forwards a connection to the first replica that accepts it.
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

// passTo forwards a connection to a chosen replica. It reports whether the replica accepted it.
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

// serve accepts connections until ctx ends.
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

// ServeBalancer runs the load balancer in front of the provider's replicas until ctx ends.
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

// startBalancer starts the load balancer and waits until it forwards to the provider.
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
