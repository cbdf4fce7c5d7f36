package cluster

import (
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"
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
