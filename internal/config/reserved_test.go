package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The table and the two examples of Microsoft Learn, "Node resource reservations in AKS".
func TestReserved(t *testing.T) {
	const gib = 1 << 30
	for cores, cpu := range map[int]string{
		1: "60m", 2: "100m", 4: "140m", 8: "180m", 16: "260m", 32: "420m", 64: "740m",
	} {
		if got := (Node{MaxPods: 30}).Reserved(cores*1000, 8*gib)["cpu"]; got != cpu {
			t.Errorf("%d processors: %s, want %s", cores, got, cpu)
		}
	}
	for _, tt := range []struct {
		name       string
		node       Node
		processors int
		memory     int64
		want       map[string]string
	}{
		{"30 pods in 8 GiB", Node{MaxPods: 30}, 2000, 8 * gib,
			map[string]string{"cpu": "100m", "memory": "650Mi"}},
		{"70 pods in 4 GiB", Node{MaxPods: 70}, 2000, 4 * gib,
			map[string]string{"cpu": "100m", "memory": "1024Mi"}},
		{"another kernel", Node{MaxPods: 70}, 2000, 4*gib - 40<<20,
			map[string]string{"cpu": "100m", "memory": "1008Mi"}},
		{"half a processor", Node{MaxPods: 30}, 500, gib,
			map[string]string{"cpu": "60m", "memory": "256Mi"}},
		{"configured", Node{MaxPods: 30, Kubelet: Kubelet{KubeReserved: map[string]string{
			"memory": "0", "pid": "100"}}}, 3000, 8 * gib,
			map[string]string{"cpu": "120m", "memory": "0", "pid": "100"}},
		{"not known", Node{MaxPods: 30}, 0, 0, nil},
	} {
		if diff := cmp.Diff(tt.want, tt.node.Reserved(tt.processors, tt.memory)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
