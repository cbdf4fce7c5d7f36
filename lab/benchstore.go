package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// StoreBench writes to the provider's store what a fleet writes in a period, as fast as the store
// accepts it. It measures the size of the store, not its speed.
type StoreBench struct {
	// Nodes is the number of nodes, For the simulated period.
	Nodes int
	For   time.Duration
	// Replicas is the number of replicas that record polls; each gets a poll of every node within five
	// minutes.
	Replicas int
	// Compact compacts the store as the provider does; otherwise it only grows.
	Compact bool
	// Say reports the store's size after each simulated five minutes.
	Say func(format string, args ...any)
}

// What a fleet writes: of a thousand nodes, per minute, the status of ten changes and the owner
// changes one.
const (
	statusPerMille = 10
	putsPerMille   = 1
	// nodesAtOnce is the number of nodes stored in one transaction, with three rows each.
	nodesAtOnce = 40
)

// StoreSizes holds the store's sizes in bytes.
type StoreSizes struct {
	// Filled is the size with every node and no history; Peak that of the largest file; Written the
	// bytes written in the simulated period; Grown the store's growth between compactions.
	Filled, Peak, Written, Grown int64
	// Commits is the number of transactions.
	Commits int
	// Compacted and Defragmented are the size in use and of the file, after each at the end.
	Compacted, Defragmented [2]int64
}

// Embedded measures an etcd embedded in this process.
func (b StoreBench) Embedded(ctx context.Context) (StoreSizes, error) {
	dir, err := os.MkdirTemp("", "flexlab-store-")
	if err != nil {
		return StoreSizes{}, err
	}
	defer os.RemoveAll(dir)
	e, err := store.Open(ctx, dir, store.Options{NoSync: true})
	if err != nil {
		return StoreSizes{}, err
	}
	defer e.Close()
	return b.run(ctx, e)
}

// Members measures an external etcd with n members.
func (b StoreBench) Members(ctx context.Context, n int) (StoreSizes, error) {
	dir, err := os.MkdirTemp("", "flexlab-store-")
	if err != nil {
		return StoreSizes{}, err
	}
	defer os.RemoveAll(dir)
	m, err := storetest.Start(filepath.Join(dir, "etcd"), n, 8<<30)
	if err != nil {
		return StoreSizes{}, err
	}
	defer m.Stop()
	e, err := store.Dial(store.External{Endpoints: m.Endpoints})
	if err != nil {
		return StoreSizes{}, err
	}
	defer e.Close()
	return b.run(ctx, e)
}

// storeRun is a measurement.
type storeRun struct {
	StoreBench
	etcd  *store.Etcd
	store *store.Store
	seen  []*store.Seen
	now   time.Time
	sizes StoreSizes

	written, commits atomic.Int64
}

// counted counts transactions and written bytes.
type counted struct {
	*store.Etcd
	written, commits *atomic.Int64
}

func (c counted) Commit(
	ctx context.Context, conditions []store.Condition, writes []store.Write,
) (int64, error) {
	revision, err := c.Etcd.Commit(ctx, conditions, writes)
	if err != nil { // such as a conflict, which is retried
		return 0, err
	}
	c.commits.Add(1)
	for _, w := range writes {
		c.written.Add(int64(len(w.Key) + len(w.Value)))
	}
	return revision, nil
}

func (b StoreBench) run(ctx context.Context, e *store.Etcd) (StoreSizes, error) {
	r := &storeRun{
		StoreBench: b, etcd: e, now: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC),
	}
	r.store = store.New(counted{e, &r.written, &r.commits})
	if err := r.fill(ctx); err != nil {
		return r.sizes, err
	}
	x := store.NewIndex(r.store)
	if err := x.Load(ctx); err != nil {
		return r.sizes, err
	}
	for range b.Replicas {
		seen := store.NewSeen(r.store, x)
		seen.Now = func() time.Time { return r.now }
		r.seen = append(r.seen, seen)
	}
	if err := r.hours(ctx); err != nil {
		return r.sizes, err
	}
	r.sizes.Written, r.sizes.Commits = r.written.Load(), int(r.commits.Load())
	return r.sizes, r.end(ctx)
}

// fill stores every node once.
func (r *storeRun) fill(ctx context.Context) error {
	for first := 0; first < r.Nodes; first += nodesAtOnce {
		_, err := r.store.Update(ctx, "filled", nil, func(v *store.View) error {
			for i := first; i < min(first+nodesAtOnce, r.Nodes); i++ {
				if err := r.put(v, i, 1); err != nil {
					return err
				}
				if err := r.store.Status.Set(v, nodeKeyOf(i), r.status(i)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if _, err := r.etcd.CompactAll(ctx); err != nil {
		return err
	}
	if err := r.etcd.Defragment(ctx, func(store.EtcdMember, bool) {}); err != nil {
		return err
	}
	_, size := r.measure(ctx)
	r.sizes.Filled = size
	r.written.Store(0)
	r.commits.Store(0)
	r.Say("%d nodes stored: %.0f MiB", r.Nodes, mib(size))
	return nil
}

// hours simulates the period in steps of five minutes.
func (r *storeRun) hours(ctx context.Context) error {
	var before int64 // revision five minutes ago
	for passed := time.Duration(0); passed < r.For; passed += store.CompactEvery {
		from, _ := r.measure(ctx)
		if err := r.fiveMinutes(ctx); err != nil {
			return err
		}
		used, size := r.measure(ctx)
		r.sizes.Grown += used - from
		r.sizes.Peak = max(r.sizes.Peak, size)
		r.Say("after %s: file %.0f MiB, in use %.0f MiB", passed+store.CompactEvery, mib(size),
			mib(used))
		_, now, err := r.etcd.Read(ctx)
		if err != nil {
			return err
		}
		if r.Compact && before != 0 {
			// In reality it ends long before the next one; here it would fall behind.
			if err := r.etcd.CompactAndWait(ctx, before); err != nil {
				return err
			}
		}
		before = now
	}
	return nil
}

// fiveMinutes writes what a fleet writes in five minutes.
func (r *storeRun) fiveMinutes(ctx context.Context) error {
	for range int(store.CompactEvery / time.Minute) {
		r.now = r.now.Add(time.Minute)
		err := errors.Join(
			r.change(ctx, r.Nodes*statusPerMille/1000, r.changeStatus),
			r.change(ctx, r.Nodes*putsPerMille/1000, r.changeNode))
		if err != nil {
			return err
		}
	}
	for _, seen := range r.seen {
		for i := range r.Nodes {
			seen.Note(nodeKeyOf(i), r.now.Add(-time.Duration(rand.IntN(40))*time.Second))
		}
		if err := seen.Flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// writers is the number of concurrent writers.
const writers = 8

// change writes n random nodes.
func (r *storeRun) change(ctx context.Context, n int, write func(*store.View, int) error) error {
	var all sync.WaitGroup
	var errs [writers]error
	for w := range writers {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += writers {
				node := rand.IntN(r.Nodes)
				_, errs[w] = r.store.Update(ctx, "changed", nil, func(v *store.View) error {
					return write(v, node)
				})
			}
		})
	}
	all.Wait()
	return errors.Join(errs[:]...)
}

func (r *storeRun) changeStatus(v *store.View, i int) error {
	return r.store.Status.Put(v, nodeKeyOf(i), r.status(i))
}

func (r *storeRun) changeNode(v *store.View, i int) error {
	n, err := r.store.Nodes.In(v, nodeKeyOf(i))
	if err != nil {
		return err
	}
	return r.put(v, i, n.Value.Revision+1)
}

// end compacts, then defragments, and measures after each.
func (r *storeRun) end(ctx context.Context) error {
	if _, err := r.etcd.CompactAll(ctx); err != nil {
		return err
	}
	r.sizes.Compacted[0], r.sizes.Compacted[1] = r.measure(ctx)
	if err := r.etcd.Defragment(ctx, func(store.EtcdMember, bool) {}); err != nil {
		return err
	}
	r.sizes.Defragmented[0], r.sizes.Defragmented[1] = r.measure(ctx)
	return nil
}

// measure returns the max size in use and the max file size of the members.
func (r *storeRun) measure(ctx context.Context) (used, size int64) {
	for _, m := range r.etcd.Members(ctx) {
		used, size = max(used, m.InUse), max(size, m.Size)
	}
	return used, size
}

func nodeKeyOf(i int) string {
	const sub = "11111111-2222-3333-4444-555555555555"
	return fmt.Sprintf("%s/plants/cluster-%02d/press-%06d", sub, i%20, i)
}

// put writes a node with a revision of its configuration.
func (r *storeRun) put(v *store.View, i int, version int64) error {
	key := nodeKeyOf(i)
	parts := strings.Split(key, "/")
	desired := desiredOf(i, version)
	client := desired.AzureAuth.ServicePrincipal.ClientID
	n := flexnode.Node{
		ID: fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.ContainerService/"+
			"managedClusters/%s/flexNodeConfig/%s", parts[0], parts[1], parts[2], parts[3]),
		UID: uuid.NewSHA1(uuid.Nil, []byte(key)).String(), Revision: version, Assigned: version,
		Facts: flexnode.ContentID([]byte(parts[2])), Desired: desired,
		Chosen: flexnode.Chosen{PodCIDR: "10.200.3.0/24", Versions: api.Versions{
			Kubernetes: "1.35.4", Containerd: "2.2.1", Runc: "1.3.4", CNI: "1.9.1", NPD: "1.34.0",
		}},
		Identity: "app:99999999-0000-0000-0000-000000000000/" + client,
		SystemData: api.SystemData{
			CreatedBy: "0f0f0f0f-1234-5678-9abc-def012345678", CreatedByType: "Application",
			CreatedAt: r.now, LastModifiedBy: "0f0f0f0f-1234-5678-9abc-def012345678",
			LastModifiedByType: "Application", LastModifiedAt: r.now,
		},
	}
	history, err := r.store.History.In(v, key)
	if err != nil {
		return err
	}
	revision := flexnode.Revision{
		Version: version, Facts: n.Facts, Own: flexnode.OwnLayer(n), Created: r.now,
		By: n.SystemData.CreatedBy, Why: "put", Renderer: "v1.0.0",
	}
	if err := r.store.History.Put(v, key, history.Value.With(revision, version)); err != nil {
		return err
	}
	return r.store.Nodes.Put(v, key, n)
}

func desiredOf(i int, version int64) api.Desired {
	client := uuid.NewSHA1(uuid.Nil, fmt.Append(nil, i)).String()
	return api.Desired{
		ContinuousMonitoring: true,
		AzureAuth: api.AzureAuth{Method: api.ServicePrincipal,
			ServicePrincipal: &api.ServicePrincipalAuth{ClientID: client}},
		KubernetesAuth: api.KubernetesAuth{UseAzureAuth: true},
		NodeConfig: api.NodeConfig{
			MaxPods: 50, Taints: []string{"edge=true:NoSchedule"},
			Labels: map[string]string{"line": fmt.Sprint(i % 40), "site": "north",
				"wave": fmt.Sprint(version)},
		},
	}
}

// status returns a report with as many conditions as an agent sends.
func (r *storeRun) status(i int) flexnode.Status {
	var s flexnode.Status
	s.Report.AppliedConfigVersion, s.Report.AgentVersion = "1777636800", "v1.0.0"
	s.Report.LastConfigApplied = &r.now
	for _, kind := range []string{
		"ConfigApplied", "KubeletHealthy", "ContainerdHealthy", "CredentialValid", "DiskPressure",
	} {
		s.Report.Conditions = append(s.Report.Conditions, api.Condition{
			Type: kind, Status: "True", LastTransitionTime: r.now, Reason: "AsWanted",
			Message: fmt.Sprintf("the last check of press-%06d found nothing to do", i),
		})
	}
	s.Ready = &api.Condition{Type: "Ready", Status: "True", LastTransitionTime: r.now,
		Reason: "KubeletReady", Message: "kubelet is posting ready status"}
	return s
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
