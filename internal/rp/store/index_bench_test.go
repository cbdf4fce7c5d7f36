package store

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store/storetest"
)

const benchNodes = 100_000

func benchKey(i int) string {
	const group = "12345678-90ab-cdef-1234-567890abcdef/plants"
	return fmt.Sprintf("%s/north-%02d/edge-node-%06d", group, i%20, i)
}

// benchNode is a node as an owner would write it: no two are alike.
func benchNode(i int) flexnode.Node {
	at := time.Date(2026, 11, 21, 10, 0, i%3600, 0, time.UTC)
	client := fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012d", i%20)
	return flexnode.Node{
		ID: fmt.Sprintf("/subscriptions/12345678-90ab-cdef-1234-567890abcdef/resourceGroups/plants"+
			"/providers/Microsoft.ContainerService/managedClusters/north-%02d/flexNodeConfig/"+
			"edge-node-%06d", i%20, i),
		UID:      fmt.Sprintf("%08x-4b5a-4968-8778-%012x", uint32(i*2654435761), i*7919),
		Revision: 1777636800 + int64(i), Assigned: 1777636800 + int64(i),
		Desired: api.Desired{
			ContinuousMonitoring: true,
			AzureAuth: api.AzureAuth{
				Method:           api.ServicePrincipal,
				ServicePrincipal: &api.ServicePrincipalAuth{ClientID: client},
			},
			NodeConfig: api.NodeConfig{
				MaxPods: 30, Labels: map[string]string{"line": fmt.Sprint(i % 50)},
			},
		},
		Facts:    fmt.Sprintf("%032x", i%20+1),
		Identity: "app:11111111-1111-1111-1111-111111111111/" + client,
		Chosen: flexnode.Chosen{Versions: api.Versions{
			Kubernetes: "1.34.4", Containerd: "2.2.1", Runc: "1.3.4", CNI: "1.9.1", NPD: "1.34.0",
		}},
		SystemData: api.SystemData{
			CreatedBy: client, CreatedByType: "Application", CreatedAt: at,
			LastModifiedBy: client, LastModifiedByType: "Application", LastModifiedAt: at,
		},
	}
}

// benchStatus is a full report, and what the provider has seen itself.
func benchStatus(i int) flexnode.Status {
	at := time.Date(2026, 11, 21, 10, i%60, i%59, 0, time.UTC)
	version := fmt.Sprint(1777636800 + i)
	r := api.Report{
		AppliedConfigVersion: version, LastConfigApplied: &at, AgentVersion: "v1.4.0",
		Components: &api.Components{
			Kubelet: "1.34.4", Containerd: "2.2.1", Runc: "1.3.4", CNI: "1.9.1", NPD: "1.34.0",
			Agent: "v1.4.0", Kernel: fmt.Sprintf("6.8.0-%d-generic", 50+i%10),
			OS: "Ubuntu 24.04.2 LTS",
		},
		Config: &api.Applied{Observed: version, Applied: version},
		Drift: &api.Drift{Policy: "report", Count: 1, LastSeen: &at, Items: []api.DriftItem{
			{Name: "/etc/containerd/config.toml", Message: "its content is not as configured"}}},
	}
	for n, c := range []string{"ConfigurationApplied", "CredentialValid", "NodeReady",
		"ServicesRunning", "NetworkReady", "NoDrift"} {
		r.Conditions = append(r.Conditions, api.Condition{Type: c, Status: "True", Reason: c,
			LastTransitionTime: at.Add(time.Duration(n*i%900) * time.Second)})
	}
	return flexnode.Status{Report: r, Ready: &api.Condition{
		Type: "Ready", Status: "True", LastTransitionTime: at, Reason: "KubeletReady",
	}}
}

// benchStore has nodes with their status.
func benchStore(b *testing.B, nodes int) *Store {
	b.Helper()
	s := New(storetest.NewMemory())
	for from := 0; from < nodes; from += MaxWrites / 2 {
		_, err := s.Update(b.Context(), "fill", nil, func(v *View) error {
			for i := from; i < min(from+MaxWrites/2, nodes); i++ {
				if err := s.Nodes.Set(v, benchKey(i), benchNode(i)); err != nil {
					return err
				}
				if err := s.Status.Set(v, benchKey(i), benchStatus(i)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return s
}

func benchIndex(b *testing.B, nodes int) (*Index, *Store) {
	b.Helper()
	s := benchStore(b, nodes)
	x := NewIndex(s)
	if err := x.Load(b.Context()); err != nil {
		b.Fatal(err)
	}
	return x, s
}

// BenchmarkIndexPoll is polls of different nodes on all cores.
func BenchmarkIndexPoll(b *testing.B) {
	x, _ := benchIndex(b, benchNodes)
	keys := make([]string, benchNodes)
	for i := range keys {
		keys[i] = benchKey(i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i += 7919 {
			if _, ok := x.Poll(keys[i%benchNodes]); !ok {
				b.Fatal("it is not there")
			}
		}
	})
}

// BenchmarkIndexApply is 1,000 changed status rows in one batch, as the index gets them.
func BenchmarkIndexApply(b *testing.B) {
	x, _ := benchIndex(b, benchNodes)
	batch := Batch{Revision: x.Revision() + 1}
	for i := range 1000 {
		data, err := encode(nil, benchStatus(i))
		if err != nil {
			b.Fatal(err)
		}
		key := New(nil).Status.Key(benchKey(i * 97))
		kv := KV{Key: key, Value: data, Revision: batch.Revision}
		batch.Events = append(batch.Events, Event{KV: kv})
	}
	b.ReportAllocs()
	for b.Loop() {
		x.apply(batch)
	}
}

// BenchmarkIndexLoad is a replica's start with 100,000 nodes and their status, and tells what a
// node costs it in memory.
func BenchmarkIndexLoad(b *testing.B) {
	s := benchStore(b, benchNodes)
	before := heap()
	var x *Index
	for b.Loop() {
		x = NewIndex(s)
		if err := x.Load(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(heap()-before)/benchNodes, "heap-B/node")
	runtime.KeepAlive(x)
}

// BenchmarkIndexLoadAgain is the same when nothing has changed, with what it takes at most.
func BenchmarkIndexLoadAgain(b *testing.B) {
	x, s := benchIndex(b, benchNodes)
	b.ReportAllocs()
	for b.Loop() {
		if err := x.Load(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	runtime.KeepAlive(s)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkIndexPollWhileApplying is polls while every 10 ms 100 rows change.
func BenchmarkIndexPollWhileApplying(b *testing.B) {
	x, _ := benchIndex(b, benchNodes)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for at := 0; ctx.Err() == nil; at += 100 {
			batch := Batch{Revision: x.Revision() + 1}
			for i := range 100 {
				data, _ := encode(nil, benchStatus(at+i))
				kv := KV{Key: New(nil).Status.Key(benchKey((at + i) % benchNodes)), Value: data}
				kv.Revision = batch.Revision
				batch.Events = append(batch.Events, Event{KV: kv})
			}
			x.apply(batch)
			Pause(ctx, 10*time.Millisecond)
		}
	}()
	key := benchKey(4711)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, ok := x.Poll(key); !ok {
			b.Fatal("it is not there")
		}
	}
	b.StopTimer()
	cancel()
	<-done
}
