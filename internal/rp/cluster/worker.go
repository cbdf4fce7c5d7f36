package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/rollout"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// owner is the ownership of a cluster by this replica (store.Ownership).
type owner interface {
	// Fence is a condition for writes, Valid reports whether effects outside the store are allowed.
	Fence() store.Condition
	Valid() bool
	// Lost is closed when it ends.
	Lost() <-chan struct{}
}

// worker does all work for one cluster while this replica owns it.
type worker struct {
	*Manager
	key   string // of the cluster
	owner owner
	log   *slog.Logger
	stop  context.CancelFunc
	done  chan struct{}

	tasks, requests *line // in the pools of the Manager
	// reviews limits the reviews of certificate requests, by whether they are approved already.
	reviews map[bool]*rate.Limiter
	readies *rate.Limiter // of writes of Ready conditions
	// outstanding holds the states of the cluster's credentials that have not ended, by key.
	outstanding sync.Map
	// revocations holds the rows of certificates that need work, by key, machines the ends of those of
	// our machines; both are complete once certified.
	revocations, machines sync.Map
	certified             atomic.Bool
	rollout               rollout.Rollout // of taskRollout

	// session is the present one; nil until the cluster is proved to be this one.
	session atomic.Pointer[session]
	asked   atomic.Value // the last probed version of the registration, a string
	again   chan struct{}
	gone    atomic.Bool // Resource Manager does not have the cluster
	// taintsRefused is the end of a pause without taints, after the cluster has refused one, in Unix
	// nanoseconds.
	taintsRefused atomic.Int64
	// taintsSet delays the same taints of a node, by claim.set.
	taintsSet *flowcontrol.Backoff

	mu      sync.Mutex
	parked  map[job]bool
	failing time.Time // start of the time without an answer
}

// task is a piece of work; it is queued once, however often it is added.
type task struct {
	kind string
	key  string
}

// The kinds of tasks.
const (
	taskCluster    = "cluster"    // handle a change of the registration
	taskNode       = "node"       // handle a change of a node
	taskReadiness  = "readiness"  // write the Ready condition of a Node
	taskRender     = "render"     // render nodes with new facts
	taskRollout    = "rollout"    // admit nodes to changes
	taskCredential = "credential" // do the next step of a credential
	taskSubnets    = "subnets"    // record the pod subnets of Nodes
	taskRemove     = "remove"     // delete the registration
	taskTaints     = "taints"     // set the taints of a Node
	taskLeave      = "leave"      // delete the Node of a machine that has left
	taskRevoke     = "revoke"     // make the cluster refuse revoked certificates
	taskRequest    = "request"    // decide on a certificate request
)

// The pauses before a failed task is retried.
const (
	firstPause, lastPause   = 200 * time.Millisecond, 30 * time.Second
	firstAnswer, lastAnswer = 100 * time.Millisecond, 5 * time.Second
	taskTimeout             = time.Minute
	// rolloutPause collects changes of nodes, so that one round decides on them together.
	rolloutPause = 100 * time.Millisecond
	// Limits of reviews of a cluster's certificate requests, per second and in a burst: of requests
	// without an answer, and of approved ones. Others wait for reviewPause.
	reviewRate, noteRate, reviewBurst = 50, 200, 2000
	reviewPause                       = time.Second
)

func (m *Manager) start(ctx context.Context, key string, o owner) *worker {
	ctx, cancel := context.WithCancel(ctx)
	w := &worker{
		Manager: m, key: key, owner: o, log: m.Log.With("cluster", key), stop: cancel,
		done: make(chan struct{}), parked: map[job]bool{},
		reviews: map[bool]*rate.Limiter{false: rate.NewLimiter(reviewRate, reviewBurst),
			true: rate.NewLimiter(noteRate, reviewBurst)},
		readies: rate.NewLimiter(readyRate, reviewBurst),
		again:   make(chan struct{}, 1), taintsSet: flowcontrol.NewBackOff(taintsAgain, taintsLast),
	}
	w.tasks, w.requests = &line{pool: m.tasks}, &line{pool: m.requests}
	for _, l := range []*line{w.tasks, w.requests} {
		l.do = func(t task) { w.handle(ctx, l, t) }
	}
	w.rollout = rollout.Rollout{
		Store: m.Store, Index: m.Index, Cluster: key, Fence: o.Fence(), Heard: m.Heard, Ready: w.readyNow,
		Now: time.Now, Log: w.log,
	}
	go func() {
		defer close(w.done)
		defer cancel()
		w.run(ctx)
	}()
	return w
}

func (w *worker) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// run works until ctx ends or the cluster is not owned any more.
func (w *worker) run(ctx context.Context) {
	w.log.Info("owner of cluster")
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { w.keep(ctx, w.followCredentials) })
	wg.Go(func() { w.keep(ctx, w.followCertificates) })
	wg.Go(func() { w.keep(ctx, w.keepConnected) })
	w.tasks.Add(task{kind: taskCluster})
	w.tasks.Add(task{kind: taskRollout})
	select {
	case <-ctx.Done():
	case <-w.owner.Lost():
		w.log.Info("no longer owner of cluster")
	}
	w.stop()
	w.tasks.close()
	w.requests.close()
}

// keep calls f until ctx ends, and again after a pause, also when it panics.
func (w *worker) keep(ctx context.Context, f func(context.Context)) {
	for ctx.Err() == nil {
		_ = w.guard(func() error {
			f(ctx)
			return nil
		})
		store.Pause(ctx, lastPause)
	}
}

// guard calls f. A panic ends the present session, or is only counted and logged without one or in
// the change of a single row, and is returned as an error.
func (w *worker) guard(f func() error) (err error) {
	defer func() {
		switch s := w.session.Load(); {
		case !errors.Is(err, store.ErrCrash):
		case s != nil && !errors.Is(err, store.ErrRow):
			s.fail(err)
		default:
			w.countEnd(err)
		}
	}()
	defer store.Caught(&err)
	return f()
}

// handle runs a task, and queues it again if needed.
func (w *worker) handle(ctx context.Context, q *line, t task) {
	inner, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	var next time.Time
	err := w.guard(func() (err error) {
		next, err = w.do(inner, t)
		return err
	})
	switch {
	case ctx.Err() != nil, errors.Is(err, store.ErrFenced): // the next owner does it
		next = noTime
	case errors.Is(err, errUnreachable): // it is due then even if the cluster does not answer
		w.park(job{q, t})
	case errors.Is(err, errNotOwner): // perhaps only the store is slow
		next = time.Now().Add(time.Second)
	case err != nil:
		w.log.Warn("a task has failed and is tried again", "task", t.kind, "key", t.key,
			slog.Any("error", err))
		q.AddRateLimited(t)
		return
	}
	q.Forget(t)
	if !next.IsZero() {
		q.AddAfter(t, max(0, time.Until(next)))
	}
}

// do runs a task; the time is that of its next run, if not zero.
func (w *worker) do(ctx context.Context, t task) (time.Time, error) {
	if !w.owner.Valid() || ctx.Err() != nil {
		return noTime, errNotOwner
	}
	switch t.kind {
	case taskCluster:
		return noTime, w.clusterChanged()
	case taskNode:
		return noTime, w.nodeChanged(t.key)
	case taskRender:
		return w.render(ctx)
	case taskRollout:
		return w.rollout.Step(ctx)
	case taskCredential:
		return w.Credentials.Step(ctx, t.key, tokens{w}, w.owner.Fence())
	case taskRemove:
		return w.remove(ctx)
	}
	s, err := w.use()
	if err != nil {
		return noTime, err
	}
	switch t.kind {
	case taskReadiness:
		return noTime, w.compareReady(ctx, s, t.key)
	case taskSubnets:
		return w.noteSubnets(ctx, s)
	case taskTaints:
		return w.setTaints(ctx, s, t.key)
	case taskLeave:
		return w.deleteNode(ctx, s, t.key)
	case taskRevoke:
		return w.revoke(ctx, s)
	case taskRequest:
		return w.reviewNamed(ctx, s, t.key)
	}
	return noTime, fmt.Errorf("internal error: no task is called %q", t.kind)
}

var (
	// errUnreachable is the error for a cluster that does not answer now: its tasks wait until it
	// does.
	errUnreachable = errors.New("the cluster does not answer")
	// errNotOwner is the error for a cluster that another replica may own by now.
	errNotOwner = errors.New("this replica does not own the cluster any more")
)

// use returns the session for effects in the cluster.
func (w *worker) use() (*session, error) {
	s := w.session.Load()
	switch {
	case !w.owner.Valid():
		return nil, errNotOwner
	case s == nil || !s.up.Load():
		return nil, errUnreachable
	}
	if row, err := w.Index.Cluster(w.key); err != nil || row.Value.UID != s.registration {
		return nil, errors.Join(errUnreachable, err)
	}
	return s, nil
}

// patch changes members of an object of the cluster, if this replica owns the cluster.
func patch[T any](ctx context.Context, w *worker, client interface {
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)
}, name string, members map[string]any) error {
	body, _ := json.Marshal(members) // texts and taints can be encoded
	if !w.owner.Valid() {
		return errNotOwner
	}
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	_, err := client.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

// park keeps a job until the cluster answers.
func (w *worker) park(j job) {
	w.mu.Lock()
	w.parked[j] = true
	w.mu.Unlock()
	if _, err := w.use(); err == nil { // it answers again
		w.unpark()
	}
}

func (w *worker) unpark() {
	w.mu.Lock()
	parked := w.parked
	w.parked = map[job]bool{}
	w.mu.Unlock()
	for j := range parked {
		j.line.Add(j.task)
	}
}

// update makes a change that depends on the ownership of the cluster.
func (w *worker) update(
	ctx context.Context, what string, ahead []string, decide func(*store.View) error,
) error {
	_, err := w.Store.Update(ctx, what, ahead, func(v *store.View) error {
		v.Fence(w.owner.Fence())
		return decide(v)
	})
	return err
}

// editCluster changes the row of the cluster, if it exists and with reports that it must be
// written.
func (w *worker) editCluster(
	ctx context.Context, what string, with func(*flexnode.Cluster) bool,
) error {
	return w.update(ctx, what, nil, func(v *store.View) error {
		row := w.Store.Clusters.Row(v, w.key)
		if !row.Exists() || !with(&row.Value) {
			return nil
		}
		return w.Store.Clusters.Put(v, w.key, row.Value)
	})
}

// changed receives rows of the cluster that have changed in the index.
func (w *worker) changed(table, key string) {
	switch table {
	case "subscriptions":
		store.Signal(w.again)
		return
	case "clusters":
		w.tasks.Add(task{kind: taskCluster})
	case "nodes":
		w.tasks.Add(task{taskNode, key})
	case "status":
		w.noteReady(key)
	}
	w.tasks.AddAfter(task{kind: taskRollout}, rolloutPause)
}

func (w *worker) clusterChanged() error {
	row, err := w.Index.Cluster(w.key)
	if err != nil || !row.Exists() {
		return err
	}
	if row.Value.Deleting() {
		w.tasks.Add(task{kind: taskRemove})
		return nil
	}
	if row.Value.Properties.PodCIDR != "" && row.Value.SubnetsEpoch == 0 {
		w.tasks.Add(task{kind: taskSubnets})
	}
	if w.asked.Load() != row.Value.Version {
		store.Signal(w.again)
	}
	if row.Value.Facts != "" {
		w.tasks.Add(task{kind: taskRender})
	}
	return nil
}

func (w *worker) nodeChanged(key string) error {
	w.noteReady(key)
	polled, there := w.Index.Poll(key)
	if polled.Joining {
		node, err := w.Index.Node(key)
		if err != nil {
			return err
		}
		w.tasks.Add(task{taskCredential, node.Value.Credential})
	}
	cluster, err := w.Index.Cluster(w.key)
	if err != nil {
		return err
	}
	if !there && cluster.Value.Properties.PodCIDR != "" {
		// Its subnet is free, unless a Node has it, which may be another one after a restore.
		w.tasks.AddAfter(task{kind: taskSubnets}, freedPause)
	}
	if cluster.Value.Facts != "" && w.Index.IsStale(key, cluster.Value.Facts) {
		w.tasks.Add(task{kind: taskRender})
	}
	return nil
}
