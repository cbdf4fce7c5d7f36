package flexnode

import (
	"path"
	"testing"
)

// A node is not called as the API server of its cluster or a Node of AKS: 400.
func TestNamesOfTheAPIServer(t *testing.T) {
	for name, refused := range map[string]bool{
		"kubernetes": true, "Kubernetes.Default": true, "kubernetes.default.svc": true,
		"kubernetes.default.svc.cluster.local": true, "kubernetes.default.svc.site.example": true,
		"localhost": true, "a.localhost": true, "factory.example": true, "Moved.example": true,
		"kubernetes-1": false, "edge.factory.example": false, "kubernetes.defaults": false,
		"my.kubernetes": false, "AKS-pool1-0": true, "aksnpwin": true, "my-aks": false,
	} {
		w := newWorld(t)
		w.reach(someFacts(), "1.35.4")
		w.parent.Cluster.Properties.ServerURL = "https://moved.example:443/"
		p := Put{ID: path.Join(path.Dir(nodeID), name), NewUID: "u", At: w.now}
		_, problems := Decide(p, nil, nil, nil, w.parent, Secret{})
		if !refused {
			if len(problems) > 0 {
				t.Errorf("%s: %v", name, problems)
			}
			continue
		}
		if e := problems.ARM(); e == nil || e.Status != 400 || e.Target != "name" {
			t.Errorf("%s: %v", name, problems)
		}
	}
	var unknown Parent // nothing is known of the cluster yet
	if problems := checkName(nodeID, unknown); len(problems) > 0 {
		t.Errorf("%v", problems)
	}
}
