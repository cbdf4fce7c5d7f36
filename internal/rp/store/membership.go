package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

const (
	// MemberTTL is the time without contact after which a replica is no member any more.
	MemberTTL = 10 * time.Second
	// OwnerMargin limits the time of an effect outside the store that was begun while an
	// Ownership was valid: another replica can own the cluster only later.
	OwnerMargin = 2 * time.Second
	// memberPatience limits the time of one request to the store.
	memberPatience = 4 * time.Second
	// memberPause is the mean pause after a request has failed.
	memberPause = 500 * time.Millisecond
	// claimsAtOnce limits the clusters that are claimed in one transaction.
	claimsAtOnce = 100
)

// Member is a replica in the rows Members and Owners. Lease distinguishes its processes.
type Member struct {
	Replica string `json:"replica"`
	Lease   int64  `json:"lease"`
}

// Membership is a replica among the others. One of them owns each cluster: the one with the highest
// hash of its name and the cluster's, unless it does not reach the cluster and another does. A
// replica that joins or leaves moves only the clusters that it gets or had.
type Membership struct {
	// Say receives each error of the store; it is retried.
	Say func(error)
	// Try returns the reason that this replica does not reach a cluster which another one owns. If
	// Try is nil, the replica does not try.
	Try func(ctx context.Context, cluster string) error

	store   *Store
	replica string
	lease   Lease         // nil until it has joined
	wake    chan struct{} // something has changed, or must be tried again
	changed chan struct{}

	mu       sync.Mutex
	synced   int // number of tables that were read
	members  map[string]bool
	clusters map[string]bool
	owners   map[string]Row[Member]
	owned    map[string]*Ownership
	leaving  map[string]*Ownership // released once their effects have ended
	// reaches has the rows of Reaches by cluster and replica, unsaid those that this replica must
	// still write, tried the times of its last attempts.
	reaches map[string]map[string]bool
	unsaid  map[string]bool
	tried   map[string]time.Time
	trying  bool
}

// syncedAll is the number of tables that Run follows.
const syncedAll = 4

// NewMembership returns a replica that Run makes a member.
func NewMembership(s *Store, replica string) *Membership {
	return &Membership{
		Say: func(error) {}, store: s, replica: replica,
		wake: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		members: map[string]bool{}, clusters: map[string]bool{}, owners: map[string]Row[Member]{},
		owned: map[string]*Ownership{}, leaving: map[string]*Ownership{},
		reaches: map[string]map[string]bool{}, unsaid: map[string]bool{}, tried: map[string]time.Time{},
	}
}

// enter gets a lease and writes the row of the member.
func (m *Membership) enter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, memberPatience)
	defer cancel()
	lease, err := m.store.Lease(ctx, MemberTTL)
	if err == nil {
		m.lease = lease
		if err = m.announce(ctx); err != nil {
			_ = lease.Close() // it ends by itself otherwise
		}
	}
	if err != nil {
		return fmt.Errorf("cannot join the replicas: %w", err)
	}
	return nil
}

func (m *Membership) announce(ctx context.Context) error {
	_, err := m.store.Update(ctx, "join", nil, func(v *View) error {
		return m.store.Members.Lease(v, m.replica, Member{m.replica, m.lease.ID()}, m.lease)
	})
	return err
}

// Run joins the replicas, however long it takes: from then on the clusters of which this replica is
// the first choice wait for it, so it must be able to work. It claims those and releases others
// until ctx ends; then it releases all and leaves. ctx must not end before the work under its
// Ownerships has stopped.
func (m *Membership) Run(ctx context.Context) {
	var following sync.WaitGroup
	following.Go(func() { followTable(ctx, m, m.store.Members, m.seeMember) })
	following.Go(func() { followTable(ctx, m, m.store.Owners, m.seeOwner) })
	following.Go(func() {
		followTable(ctx, m, m.store.Clusters, func(r Row[flexnode.Cluster]) {
			keep(m.clusters, r.Key, r, true)
		})
	})
	following.Go(func() { followTable(ctx, m, m.store.Reaches, m.seeReach) })
	m.join(ctx)
	for ctx.Err() == nil {
		select {
		case <-m.lease.Done():
			m.loseAll()
			m.join(ctx)
			Signal(m.wake)
			continue
		default:
		}
		next := m.reconcile(ctx)
		m.tryAll(ctx, &following)
		select {
		case <-ctx.Done():
		case <-m.lease.Done():
		case <-m.wake:
		case <-time.After(next):
		}
	}
	m.loseAll()
	if m.lease != nil { // it has joined
		if err := m.lease.Close(); err != nil {
			m.Say(fmt.Errorf("cannot leave the replicas, they will see it in %v: %w", MemberTTL, err))
		}
	}
	following.Wait()
}

// join makes this replica a member, also after its lease has ended, however long it takes.
func (m *Membership) join(ctx context.Context) {
	for ctx.Err() == nil {
		err := m.enter(ctx)
		if err == nil {
			return
		}
		m.Say(err)
		Pause(ctx, Jitter(memberPause))
	}
}

// Signal wakes the receiver of a channel with room for one signal.
func Signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// followTable calls see, with the lock held, for each row that has changed.
func followTable[T any](ctx context.Context, m *Membership, t Table[T], see func(Row[T])) {
	t.Sync(ctx, "", func(r Row[T]) {
		m.mu.Lock()
		see(r)
		m.mu.Unlock()
		Signal(m.wake)
	}, func() {
		m.mu.Lock()
		m.synced++
		m.mu.Unlock()
		Signal(m.wake)
	}, m.Say)
}

func (m *Membership) seeMember(r Row[Member]) {
	keep(m.members, r.Key, r, true)
	Signal(m.changed)
}

// keep makes a map have the value of a row, unless that was deleted.
func keep[T, V any](in map[string]V, key string, r Row[T], value V) {
	if in[key] = value; !r.Exists() {
		delete(in, key)
	}
}

// seeOwner ends an ownership whose row has changed.
func (m *Membership) seeOwner(r Row[Member]) {
	keep(m.owners, r.Key, r, r)
	if o := m.owned[r.Key]; o != nil && o.gone(r) {
		m.lose(o)
	}
	if o := m.leaving[r.Key]; o != nil && o.gone(r) {
		delete(m.leaving, r.Key)
	}
}

// choice returns the member that is the first choice for a cluster.
func choice(members map[string]bool, cluster string) string {
	best, highest := "", uint64(0)
	for name := range members {
		sum := sha256.Sum256([]byte(name + "\x00" + cluster))
		score := binary.BigEndian.Uint64(sum[:])
		if best == "" || score > highest || score == highest && name < best {
			best, highest = name, score
		}
	}
	return best
}

// Owns reports whether this replica owns a cluster.
func (m *Membership) Owns(cluster string) (*Ownership, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.owned[cluster]
	return o, ok
}

// Owned returns the keys of the clusters that this replica owns.
func (m *Membership) Owned() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return sortedKeys(m.owned)
}

// Changed returns a channel that signals changes of the members or of the owned clusters.
func (m *Membership) Changed() <-chan struct{} { return m.changed }
