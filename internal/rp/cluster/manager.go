// Package cluster does the provider's work in target clusters: one connection to each, which is
// remade when its source changes; the probe of the facts that nodes receive; bootstrap tokens;
// the approval of certificate requests; the Ready condition of Nodes; and the deletion of
// registrations. Each cluster is worked on by the replica that owns it. Nothing else of the
// provider uses client-go.
package cluster

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/runtime"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// The counted events: answers to certificate requests, sessions that a limit or a panic has ended,
// and workers that have not ended in time.
const (
	Approved   = "approved"
	Denied     = "denied"
	Limit      = "limit"
	Panic      = "panic"
	LeftBehind = "leftBehind"
)

// A panic in a goroutine of client-go must not end the process: client-go logs it and continues.
func init() { runtime.ReallyCrash = false }

// Manager works on the clusters that this replica owns.
type Manager struct {
	Store       *store.Store
	Index       *store.Index
	Membership  *store.Membership
	Credentials *credential.Service
	Source      Source
	// Dial returns the clients of an access.
	Dial func(Access) (*Connection, error)
	// Installation names this provider: it labels its Secrets and touches no others.
	Installation string
	// TenantID is the tenant of subscriptions for which ARM has sent none.
	TenantID string
	// Defaults is the layer of the operator's defaults, for nodes that were never rendered.
	Defaults *flexnode.Layer
	// Renderer is the version of the program.
	Renderer string
	// Heard reports whether the agent of a node was heard of lately.
	Heard      func(nodeKey string) bool
	Log, Audit *slog.Logger
	// Count counts an event.
	Count func(event string)

	mu      sync.RWMutex
	working map[string]*worker // by key of the cluster
	// tasks and requests run the tasks of all workers, while there are any; certificate requests do
	// not wait for the rest.
	tasks, requests *pool
}

// checkInterval is the time between checks of the owned clusters, besides reported changes.
const checkInterval = 5 * time.Second

// Run works until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	defer m.Index.Subscribe(m.changed)()
	defer m.assign(ctx, nil)
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		owned := map[string]owner{}
		for _, key := range m.Membership.Owned() {
			if o, ok := m.Membership.Owns(key); ok {
				owned[key] = o
			}
		}
		m.assign(ctx, owned)
		select {
		case <-ctx.Done():
		case <-m.Membership.Changed():
		case <-tick.C:
		}
	}
}

// assign starts workers for the owned clusters and stops all others. A cluster with a new owner
// gets its worker when the previous one has ended or is left behind.
func (m *Manager) assign(ctx context.Context, owned map[string]owner) {
	stopped := m.release(owned)
	m.startAll(ctx, owned, stopped)
	m.await(stopped)
	m.startAll(ctx, owned, nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.working) == 0 && m.tasks != nil {
		m.tasks.queue.ShutDown()
		m.requests.queue.ShutDown()
		m.tasks, m.requests = nil, nil
	}
}

// release stops the workers of clusters that are not owned, and returns them.
func (m *Manager) release(owned map[string]owner) map[string]*worker {
	m.mu.Lock()
	defer m.mu.Unlock()
	stopped := map[string]*worker{}
	for key, w := range m.working {
		if owned[key] != w.owner || w.ended() {
			w.stop()
			delete(m.working, key)
			stopped[key] = w
		}
	}
	return stopped
}

// await waits until workers have ended. It leaves those behind that take longer than OwnerMargin:
// their writes are fenced.
func (m *Manager) await(stopped map[string]*worker) {
	ctx, cancel := context.WithTimeout(context.Background(), store.OwnerMargin)
	defer cancel()
	for _, w := range stopped {
		select {
		case <-w.done:
		case <-ctx.Done():
			if w.ended() {
				continue
			}
			w.log.Error("the worker of a cluster has not ended in time and is left behind")
			m.Count(LeftBehind)
		}
	}
}

// startAll starts the missing workers of clusters, except for those that have just been stopped.
func (m *Manager) startAll(
	ctx context.Context, owned map[string]owner, stopped map[string]*worker,
) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.working == nil {
		m.working = map[string]*worker{}
	}
	for key, o := range owned {
		if m.working[key] == nil && stopped[key] == nil && ctx.Err() == nil {
			if m.tasks == nil {
				m.tasks, m.requests = newPool(firstPause, lastPause), newPool(firstAnswer, lastAnswer)
			}
			m.working[key] = m.start(ctx, key, o)
		}
	}
}

func (m *Manager) changed(table, key string) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if table == "subscriptions" {
		for cluster, w := range m.working {
			if strings.HasPrefix(cluster, key+"/") {
				w.changed(table, key)
			}
		}
		return
	}
	if w := m.working[flexnode.ClusterOf(key)]; w != nil {
		w.changed(table, key)
	}
}

// CountCredentials returns the number of credentials in a state, of the clusters that this replica
// owns. It does not read the store.
func (m *Manager) CountCredentials(state string) int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n := 0
	for _, w := range m.working {
		for _, is := range w.outstanding.Range {
			if is == state {
				n++
			}
		}
	}
	return n
}
