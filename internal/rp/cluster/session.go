package cluster

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	certificates "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// session holds the state of one connection, from its start until its source gives another access.
type session struct {
	*Connection
	isOurs func(name string) bool // see worker.isOurs
	// fail ends the session with a cause.
	fail context.CancelCauseFunc
	// up reports that the cluster answered the last request, and is this registration's.
	up atomic.Bool
	// found holds the last findings; nil before them.
	found atomic.Pointer[findings]
	// requests holds the known certificate requests, by signer, nodes the Nodes; all Nodes are known
	// once nodesKnown.
	requests   []cache.Indexer
	nodes      cache.Indexer
	nodesKnown atomic.Bool
	work       sync.WaitGroup // of its watches
	// answered holds the uids of answered certificate requests: a hostile API server could show them
	// without the answer again and again.
	answered *lru.Cache[types.UID, struct{}]
}

const (
	// sourceInterval is the time between checks of the source for another access.
	sourceInterval = 5 * time.Second
	// doubtInterval is the time after which a refused connection is made again.
	doubtInterval = 30 * time.Second
	// healthInterval is the time between health checks of the cluster; healthTimeout limits one. It
	// counts as unreachable after no answer for unreachableAfter: within a minute altogether.
	healthInterval, healthTimeout, unreachableAfter = 10 * time.Second, 5 * time.Second,
		20 * time.Second
	// probeInterval is the max age of the findings about a cluster.
	probeInterval = 5 * time.Minute
)

// keepConnected keeps a session on the access that the source gives, until ctx ends.
func (w *worker) keepConnected(ctx context.Context) {
	var present *Connection
	end := func() {}
	leave := func() {
		end()
		present, end = nil, func() {}
	}
	defer func() { end() }()
	tick := time.NewTicker(sourceInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		access, registration, err := w.access(ctx, present)
		w.gone.Store(isGone(err))
		_, unused := w.use()
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, ErrNotBound), isGone(err) && errors.Is(unused, errUnreachable):
			leave()
			w.noteFailure(ctx, err)
		case errors.Is(err, errGone): // the work ends when the owner sees it
		case err != nil && present == nil:
			w.noteFailure(ctx, err)
		case err != nil: // such as for a file that is being replaced
			w.log.Warn("the cluster's source gives nothing; its last connection is used on",
				slog.Any("error", err))
		case present == nil || registration != present.registration ||
			access.Fingerprint != present.access.Fingerprint ||
			present.doubtful() && time.Since(present.made) >= doubtInterval:
			leave()
			if connection, err := w.Dial(access); err != nil {
				w.noteFailure(ctx, err)
			} else {
				connection.access, connection.registration, connection.made = access, registration, time.Now()
				present, end = connection, w.begin(ctx, connection)
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// access returns the source's access for a registration, and its uid.
func (w *worker) access(ctx context.Context, present *Connection) (Access, string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	row, err := w.Index.Cluster(w.key)
	if err != nil || !row.Exists() {
		return Access{}, "", cmp.Or(err, errGone)
	}
	access, err := w.Source.Access(ctx, row.Value, present != nil && present.doubtful())
	return access, row.Value.UID, err
}

// errGone is the error for a cluster that is not registered any more.
var errGone = errors.New("the cluster is not registered")

func (m *Manager) connect(ctx context.Context, c flexnode.Cluster) (*Connection, error) {
	access, err := m.Source.Access(ctx, c, false)
	if err != nil {
		return nil, err
	}
	return m.Dial(access)
}

// harmPause is the pause after a session that has ended with an error. It doubles each time up to
// harmLast. A session of harmCalm resets it.
const harmPause, harmLast, harmCalm = time.Second, 5 * time.Minute, 15 * time.Minute

// begin runs sessions on a connection, one after the other; end stops that and waits.
func (w *worker) begin(ctx context.Context, c *Connection) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var working sync.WaitGroup
	working.Go(func() {
		pause := harmPause
		for ctx.Err() == nil {
			began := time.Now()
			err := w.converse(ctx, c)
			if err == nil || ctx.Err() != nil {
				continue
			}
			w.countEnd(err)
			w.noteFailure(ctx, err)
			if time.Since(began) > harmCalm {
				pause = harmPause
			}
			store.Pause(ctx, pause)
			pause = min(2*pause, harmLast)
		}
	})
	return func() {
		cancel()
		working.Wait()
	}
}

// converse waits until the cluster answers and is this registration's, and then works in it. It
// makes a session of its own, since tasks may still hold the previous one. It returns an error if a
// limit or a panic has ended the session.
func (w *worker) converse(ctx context.Context, c *Connection) (err error) {
	defer store.Caught(&err)
	s := &session{Connection: c, isOurs: w.isOurs}
	s.answered, _ = lru.New[types.UID, struct{}](maxRequests) // an error only of a size below 1
	for w.probe(ctx, s) != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-w.again:
		case <-time.After(sourceInterval):
		}
	}
	ctx, s.fail = context.WithCancelCause(ctx)
	defer s.work.Wait()
	defer s.fail(nil)
	defer w.session.Store(nil)
	defer s.up.Store(false)
	s.requests = []cache.Indexer{
		w.watchRequests(ctx, s, certificates.KubeAPIServerClientKubeletSignerName),
		w.watchRequests(ctx, s, certificates.KubeletServingSignerName),
	}
	w.watchNodes(ctx, s)
	s.up.Store(true)
	w.session.Store(s)
	w.tasks.Add(task{kind: taskSubnets})
	w.unpark()
	w.keepProbing(ctx, s)
	return context.Cause(ctx) // nil unless it has ended
}

// recovered recovers a panic and ends the session. It must be deferred.
func (s *session) recovered() {
	if r := recover(); r != nil {
		s.fail(store.Crashed(r))
	}
}

func (w *worker) countEnd(cause error) {
	why := Limit
	if errors.Is(cause, store.ErrCrash) {
		why = Panic
	}
	w.Count(why)
	w.log.Error("the work in the cluster has ended and starts again after a pause",
		slog.Any("error", cause))
}

// keepProbing checks the cluster regularly, until it turns out to belong to another registration or
// ctx ends. It soon checks again one that has just stopped answering, since tasks are parked.
func (w *worker) keepProbing(ctx context.Context, s *session) {
	probed, pause := time.Now(), healthInterval
	for {
		full := false
		select {
		case <-ctx.Done():
			return
		case <-w.again:
			full = true
		case <-time.After(pause):
		}
		var err error
		if full || !s.up.Load() || time.Since(probed) >= probeInterval {
			err, probed = w.probe(ctx, s), time.Now()
		} else {
			err = w.ping(ctx, s)
		}
		if errors.Is(err, errRefused) || errors.Is(err, errGone) {
			return
		}
		switch was := s.up.Swap(err == nil); {
		case err == nil:
			if pause = healthInterval; !was {
				w.unpark()
			}
		case was:
			pause = time.Second
		default:
			pause = min(2*pause, healthInterval)
		}
	}
}
