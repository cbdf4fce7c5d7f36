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

// Chaos is a provider worked on while its replicas and the members of its store are killed, paused
// and parted, and its clusters are rotated, deleted and registered again. What is done, and in
// which order each who does it does it, comes from the seed; when it meets what else goes on does
// not.
type Chaos struct {
	Seed uint64
	For  time.Duration
}

// ChaosResult holds the result of a chaos run.
type ChaosResult struct {
	Operations, Unknown, Faults int
	// Leases counts those that were ended early, Replaced the members that were replaced.
	Leases, Replaced int
	// Linearizable reports whether there is an order of all operations that explains every answer.
	Linearizable bool
	// Findings counts the violations, by kind, after the faults and the time to catch up; URLs
	// counts those that were handed out, and Alive those of them that answer correctly.
	Findings    map[string]int
	URLs, Alive int
	CaughtUp    time.Duration
	// Updated counts the changes that nodes of the fleet have carried out, Away is the largest
	// number of them that did so at once, Broken the largest number that one version has broken.
	Updated, Away, Broken int
	// Wrong says what is not as it must be.
	Wrong []string
}

// String is the result as one line.
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
	// chaosClients work at once.
	chaosClients = 12
	// opTimeout is after how long a client gives an operation up, without knowing whether it
	// happened. The provider waits up to 8 s for a cluster.
	opTimeout = 10 * time.Second
	// catchUp is the time that the provider may take after the last fault.
	catchUp = 30 * time.Second
)

// RunChaos works on nodes through all replicas for a while, during which these and their store are
// harmed. The lab must be up with several replicas and members.
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

// chaosRun is a history in the making.
type chaosRun struct {
	Chaos
	lab    *Lab
	client *http.Client
	token  string
	etcd   *store.Etcd
	admin  *clientv3.Client // of the operator of the store
	// members are the names of the replaced ones by their id; leases and replaced count harms.
	members          map[string]string
	leases, replaced int
	store            *store.Store
	began            time.Time
	nodes            []chaosNode
	fleet            *fleet

	mu      sync.Mutex
	history []porcupine.Operation
	others  int               // operations that are not in the history: polls, lists
	urls    map[string]string // of credentials, by key: path and query
	wrong   []string
	faults  int
}

func (l *Lab) newChaos(ctx context.Context, c Chaos) (*chaosRun, error) {
	who, err := l.Azure()
	if err != nil {
		return nil, err
	}
	token, err := l.TokenAt(ctx, who.Operator, ProviderURL)
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
	_ = c.lab.releaseDisks(false) // a run that has failed may have left one stalled
}

// random returns the source of the decisions of one participant.
func (c *chaosRun) random(id uint64) *rand.Rand { return rand.New(rand.NewPCG(c.Seed, id)) }

// during has all take part until the time is over, and heals what was harmed.
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

// blame notes something that must not be.
func (c *chaosRun) blame(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wrong) < 20 {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

// rest waits for a random time of at least low; false when ctx has ended.
func rest(ctx context.Context, r *rand.Rand, low, high time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(low + time.Duration(r.Int64N(int64(high-low)))):
		return true
	}
}
