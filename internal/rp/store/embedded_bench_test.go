package store

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
)

// BenchmarkEmbeddedMemory tells what is left in memory of each row of 10,000 that were written so
// many together to the etcd of this process.
func BenchmarkEmbeddedMemory(b *testing.B) {
	for _, together := range []int{60, 16, 10} {
		b.Run(fmt.Sprint(together), func(b *testing.B) {
			for b.Loop() {
				benchEmbedded(b, together)
			}
		})
	}
}

// BenchmarkReadBesideWrites tells how long a read of two rows takes while 300 nodes a second are
// written to the disk: its median and its 99th percentile.
func BenchmarkReadBesideWrites(b *testing.B) {
	const nodes = 10_000
	s := openBench(b, b.TempDir(), Options{})
	defer closeBench(b, s)
	rows := make([][]Write, nodes)
	for i := range rows {
		rows[i] = benchRows(b, s, i)
	}
	var writers sync.WaitGroup
	stop := make(chan struct{})
	began := time.Now()
	for w := range 16 {
		writers.Go(func() {
			for i := w; ; i += 16 {
				time.Sleep(time.Until(began.Add(time.Second * time.Duration(i) / 300)))
				select {
				case <-stop:
					return
				default:
				}
				if _, err := s.Commit(b.Context(), nil, rows[i%nodes]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	var took []time.Duration
	for b.Loop() {
		n := len(took) * 7919 % nodes
		began := time.Now()
		if _, _, err := s.Read(b.Context(), rows[n][0].Key, rows[n][2].Key); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
		time.Sleep(3 * time.Millisecond)
	}
	close(stop)
	writers.Wait()
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
}

func benchEmbedded(b *testing.B, together int) {
	const nodes, changed, logged = 10_000, 10_000, 110
	dir := b.TempDir()
	s := openBench(b, dir, Options{NoSync: true})
	for from := 0; from < nodes; from += 20 {
		var writes []Write
		for i := from; i < from+20; i++ {
			writes = append(writes, benchRows(b, s, i)...)
		}
		commitBench(b, s, writes)
	}
	closeBench(b, s)
	s = openBench(b, dir, Options{}) // as fast as the disk is
	for range logged {               // etcd keeps its last requests
		commitBench(b, s, []Write{{Key: other + "x", Value: []byte("y")}})
	}
	opened := heap()
	for from := 0; from < changed; from += together {
		var writes []Write
		for i := from; i < min(from+together, changed); i++ {
			writes = append(writes, benchRows(b, s, i)[1])
		}
		commitBench(b, s, writes)
	}
	b.ReportMetric(float64(int64(heap())-int64(opened))/changed, "written-B/row")
	closeBench(b, s)
}

func openBench(b *testing.B, dir string, o Options) *Store {
	b.Helper()
	e, err := Open(b.Context(), dir, o)
	if err != nil {
		b.Fatal(err)
	}
	return New(e)
}

func closeBench(b *testing.B, s *Store) {
	b.Helper()
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

func commitBench(b *testing.B, s *Store, writes []Write) {
	b.Helper()
	if _, err := s.Commit(b.Context(), nil, writes); err != nil {
		b.Fatal(err)
	}
}

// benchRows are the rows of a node: itself, its status, its history and its subnet.
func benchRows(b *testing.B, s *Store, i int) []Write {
	b.Helper()
	v := &View{store: s, writes: map[string]Write{}}
	key := benchKey(i)
	n := benchNode(i)
	slot, _, _ := flexnode.Slot(flexnode.ClusterOf(key), key, "10.0.0.0/8", 24, 0)
	h := flexnode.History{}.With(flexnode.Revision{Version: n.Revision, Desired: &n.Desired}, n.Revision)
	for _, err := range []error{
		s.Nodes.Set(v, key, n), s.Status.Set(v, key, benchStatus(i)), s.History.Set(v, key, h),
		s.PodCIDRs.Set(v, slot, key),
	} {
		if err != nil {
			b.Fatal(err)
		}
	}
	var writes []Write
	for _, key := range v.order {
		writes = append(writes, v.writes[key])
	}
	return writes
}
