package store

import (
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// BenchmarkStart is the start of a replica with an etcd of its own that has 100,000 nodes, all with
// a report and a history, or so many as FLEXNODE_BENCH_NODES says: open-ms is until the etcd
// answers, load-ms until the index has them, cpu-ms what both need of the processors.
func BenchmarkStart(b *testing.B) {
	nodes := benchNodes
	if text := os.Getenv("FLEXNODE_BENCH_NODES"); text != "" {
		var err error
		if nodes, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	dir := b.TempDir()
	fillDisk(b, dir, nodes)
	b.ResetTimer()
	var opening, loading, used time.Duration
	for range b.N {
		began, before := time.Now(), processorTime(b)
		e, err := Open(b.Context(), dir, Options{NoSync: true})
		if err != nil {
			b.Fatal(err)
		}
		opened := time.Now()
		x := NewIndex(New(e))
		if err := x.Load(b.Context()); err != nil {
			b.Fatal(err)
		}
		opening, loading = opening+opened.Sub(began), loading+time.Since(opened)
		used += processorTime(b) - before
		if n := x.snapshot.Load().nodes.Len(); n != nodes {
			b.Fatalf("%d nodes", n)
		}
		b.StopTimer()
		runtime.KeepAlive(x)
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(opening.Milliseconds())/float64(b.N), "open-ms")
	b.ReportMetric(float64(loading.Milliseconds())/float64(b.N), "load-ms")
	b.ReportMetric(float64(used.Milliseconds())/float64(b.N), "cpu-ms")
}

// processorTime returns the processor time that this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// fillDisk stores nodes in the etcd of a directory: first all of them, and then what they report.
func fillDisk(b *testing.B, dir string, nodes int) {
	b.Helper()
	e, err := Open(b.Context(), dir, Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	s := New(e)
	update := func(from, most int, change func(v *View, i int) error) {
		_, err := s.Update(b.Context(), "fill", nil, func(v *View) error {
			for i := from; i < min(from+most, nodes); i++ {
				if err := change(v, i); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	history := make([]byte, 900) // that is packed already
	for from := 0; from < nodes; from += MaxWrites / 2 {
		update(from, MaxWrites/2, func(v *View, i int) error {
			for at := range history {
				history[at] = byte(rand.N(256))
			}
			v.write(Write{Key: s.History.Key(benchKey(i)), Value: slices.Clone(history)})
			return s.Nodes.Set(v, benchKey(i), benchNode(i))
		})
	}
	for from := 0; from < nodes; from += MaxWrites {
		update(from, MaxWrites, func(v *View, i int) error {
			return s.Status.Set(v, benchKey(i), benchStatus(i))
		})
	}
	if err := e.Close(); err != nil {
		b.Fatal(err)
	}
}
