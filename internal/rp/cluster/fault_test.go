package cluster

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

// failApprovals has the next n approvals fail, and tells how many have.
func failApprovals(c *fakeCluster, n int64) func() int64 {
	var failed atomic.Int64
	c.PrependReactor("update", "certificatesigningrequests",
		func(a ktesting.Action) (bool, runtime.Object, error) {
			if a.GetSubresource() != "approval" || failed.Load() == n {
				return false, nil, nil
			}
			failed.Add(1)
			return true, nil, apierrors.NewInternalError(errDown)
		})
	return failed.Load
}

// fuse acts when the n-th thing was done.
type fuse struct {
	mu   sync.Mutex
	at   int
	done int
	burn func()
}

// arm has it count from now on.
func (f *fuse) arm(at int, burn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.burn = at, burn
}

// did counts what was done; what has no name is the test's own.
func (f *fuse) did(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.burn == nil || what == "" {
		return
	}
	if f.done++; f.done == f.at {
		f.burn()
	}
}

func (f *fuse) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done
}

// killedAnywhere runs a test in which a replica is killed after the n-th thing that it does, for each
// n; 0 is never. run returns how many things were done, which are so many at least.
func killedAnywhere(t *testing.T, least int, run func(t *testing.T, n int) int) {
	t.Helper()
	points := run(t, 0)
	if points < least {
		t.Fatalf("only %d things are done", points)
	}
	for n := 1; n <= points; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) { run(t, n) })
	}
}

// newKillable is a world whose store can be killed below the replica.
func newKillable(t testing.TB) (*storetest.Memory, *world, *fakeCluster) {
	t.Helper()
	w, c := registered(t)
	return w.store.Backend.(*storetest.Memory), w, c
}
