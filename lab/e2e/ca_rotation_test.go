package e2e

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/Azure/AKSFlexNode/lab"
)

// The cluster gets a new certificate authority, as with `az aks rotate-certs`. The node gets it
// from Azure, keeps its pods running, and can leave.
func rotatedCA(t *testing.T, m lab.Machine) {
	ctx := t.Context()
	serve(t, m)
	if _, err := bench.RunPod(ctx, "rotated", m.Name); err != nil {
		t.Fatal(err)
	}
	was := pod(t, "rotated")
	if err := bench.RotateCA(ctx); err != nil {
		t.Fatal(err)
	}
	rotated := time.Now()
	eventually(t, "a renewed lease", func() bool {
		renewed := object[coordinationv1.Lease](t,
			"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+m.Name).Spec.RenewTime
		return renewed != nil && renewed.After(rotated) && ready(t, m)
	})
	alive(t, "rotated", was) // kubelet trusts the API server's new client certificate
	eventually(t, "a machine without drift", func() bool {
		_, code := flex(t, m, "drift")
		return code == 0
	})
	must(t, m, "unbootstrap", "--yes", "--drain-timeout=0")
	out, err := bench.Kubectl(ctx, "", "get", "node", m.Name, "--ignore-not-found")
	if err != nil || out != "" {
		t.Errorf("the Node is still there: %v %s", err, out)
	}
}
