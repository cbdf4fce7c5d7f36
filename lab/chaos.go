package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Chaos is a load on the provider while its replicas and the members of its store are killed,
// paused and partitioned, and its clusters are rotated, deleted and registered again. The seed
// determines what each participant does and in which order, but not when.
type Chaos struct {
	Seed uint64
	For  time.Duration
}

// ChaosResult holds the result of a chaos run.
type ChaosResult struct {
	Operations, Unknown, Faults int
	// Leases counts leases that were revoked, Replaced replaced members.
	Leases, Replaced int
	// Linearizable reports whether some order of all operations explains every response.
	Linearizable bool
	// Findings counts violations by kind after the time to catch up. URLs counts the URLs handed out,
	// Alive those that respond correctly.
	Findings    map[string]int
	URLs, Alive int
	CaughtUp    time.Duration
	// Updated counts completed changes of the fleet's nodes, Away is the max number of concurrent
	// ones, Broken the max number of nodes that one version broke.
	Updated, Away, Broken int
	// Wrong lists violations.
	Wrong []string
}

// String formats the result as one line.
func (r ChaosResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "operations=%d unknown=%d faults=%d leases=%d replaced=%d linearizable=%v",
		r.Operations, r.Unknown, r.Faults, r.Leases, r.Replaced, r.Linearizable)
	for _, kind := range findingKinds {
		fmt.Fprintf(&b, " %s=%d", kind, r.Findings[kind])
	}
	fmt.Fprintf(&b, " urls=%d alive=%d updated=%d away=%d broken=%d caught_up_s=%.1f wrong=%d",
		r.URLs, r.Alive, r.Updated, r.Away, r.Broken, r.CaughtUp.Seconds(), len(r.Wrong))
	return b.String()
}

const (
	// chaosClients is the number of concurrent clients.
	chaosClients = 12
	// opTimeout is the timeout of an operation, whose result is then unknown. The provider waits up to
	// 8 s for a cluster.
	opTimeout = 10 * time.Second
	// catchUp is the time that the provider has to catch up after the last fault.
	catchUp = 30 * time.Second
)

// RunChaos changes nodes through all replicas for a while, during which faults are injected into
// the replicas and their store. The lab must run with several replicas and members.
func (l *Lab) RunChaos(ctx context.Context, c Chaos) (ChaosResult, error) {
	dirs, err := l.build(ctx, ofSystem)
	if err != nil {
		return ChaosResult{}, err
	}
	run, err := l.newChaos(ctx, c)
	if err != nil {
		return ChaosResult{}, err
	}
	defer run.end()
	if err := run.ownDisks(ctx, dirs); err != nil {
		return ChaosResult{}, err
	}
	if err := l.startSecond(ctx); err != nil {
		return ChaosResult{}, err
	}
	if err := run.register(ctx); err != nil {
		return ChaosResult{}, err
	}
	if err := run.joinFleet(ctx); err != nil {
		return ChaosResult{}, err
	}
	if err := run.during(ctx, dirs); err != nil {
		return ChaosResult{}, err
	}
	return run.judge(ctx)
}

// chaosRun is a running chaos with its history so far.
type chaosRun struct {
	Chaos
	lab    *Lab
	client *http.Client
	token  string
	etcd   *store.Etcd
	admin  *clientv3.Client // for the store's operator
	// members are the names of replaced members by their id; leases and replaced count faults.
	members          map[string]string
	leases, replaced int
	store            *store.Store
	began            time.Time
	nodes            []chaosNode
	fleet            *fleet

	mu      sync.Mutex
	history []porcupine.Operation
	others  int               // operations that are not in the history, such as lists
	urls    map[string]string // path and query of URLs by credential
	wrong   []string
	faults  int
}

func (l *Lab) newChaos(ctx context.Context, c Chaos) (*chaosRun, error) {
	token, err := l.operatorToken(ctx, ProviderURL)
	if err != nil {
		return nil, err
	}
	client, err := l.HTTPClient()
	if err != nil {
		return nil, err
	}
	client.Timeout = opTimeout
	var endpoints []string
	for i := range l.Members {
		endpoints = append(endpoints, fmt.Sprintf("http://127.0.0.1:%d", clientPort(i)))
	}
	etcd, err := store.Dial(store.External{Endpoints: endpoints})
	if err != nil {
		return nil, err
	}
	admin, err := storeClient(endpoints)
	if err != nil {
		return nil, err
	}
	return &chaosRun{Chaos: c, lab: l, client: client, token: token, etcd: etcd, admin: admin,
		members: map[string]string{},
		store:   store.New(etcd), began: time.Now(), nodes: chaosNodes(), urls: map[string]string{}}, nil
}

func (c *chaosRun) end() {
	c.client.CloseIdleConnections()
	_ = c.etcd.Close() // nothing is lost
	_ = c.admin.Close()
	_ = c.lab.releaseDisks(false) // a failed run may leave a disk stalled
}

// random returns a participant's source of randomness.
func (c *chaosRun) random(id uint64) *rand.Rand { return rand.New(rand.NewPCG(c.Seed, id)) }

// during runs all participants until the time is over and undoes the faults.
func (c *chaosRun) during(ctx context.Context, dirs programs) error {
	working, stop := context.WithTimeout(ctx, c.For)
	defer stop()
	var wg sync.WaitGroup
	for i := range chaosClients {
		wg.Go(func() { c.work(working, i) })
	}
	for _, agent := range c.fleet.agents {
		wg.Go(func() { agent.run(working) })
	}
	errs := make([]error, 5)
	for i, part := range []func(context.Context) error{
		c.rotate, c.compact, c.kubelets, c.registrations, c.updates,
	} {
		wg.Go(func() { errs[i] = part(working) })
	}
	err := c.harm(working, dirs)
	stop()
	wg.Wait()
	return errors.Join(append(errs, err)...)
}

// blame records a violation.
func (c *chaosRun) blame(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wrong) < 20 {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

// rest sleeps for a random time between low and high. It returns false if ctx has ended.
func rest(ctx context.Context, r *rand.Rand, low, high time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(low + time.Duration(r.Int64N(int64(high-low)))):
		return true
	}
}
