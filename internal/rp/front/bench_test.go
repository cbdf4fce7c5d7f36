package front

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/AKSFlexNode/internal/machinekey"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// BenchmarkPoll measures a machine's poll of its unchanged node, without TLS and connection.
func BenchmarkPoll(b *testing.B) {
	w := newWorld(b)
	w.register("")
	w.settles(201, "PUT", nodeURL("n"), "{}")
	m := w.machineOf("n")
	m.registers(b, 204, w.enrolment(b, "n"))
	header := m.signs(machinekey.Request{})
	request := httptest.NewRequest(http.MethodGet, publicURL+nodeURL("n"), nil)
	request.Header.Set("If-None-Match", w.do("GET", nodeURL("n"), "", header).Header.Get("ETag"))
	request.Header.Set("Authorization", strings.TrimPrefix(header, "Authorization: "))
	b.ReportAllocs()
	for b.Loop() {
		recorder := httptest.NewRecorder()
		w.front.ServeHTTP(recorder, request)
		if recorder.Code != http.StatusNotModified {
			b.Fatalf("status %d: %s", recorder.Code, recorder.Body)
		}
	}
}

// BenchmarkPutServed measures PUTs that change nodes, many at a time over TLS, with a database on
// disk. cpu-us/op is the processor time of clients, provider and database for one.
func BenchmarkPutServed(b *testing.B) {
	backend := must(store.Open(b.Context(), b.TempDir(), store.Options{}))
	b.Cleanup(func() {
		if err := backend.Close(); err != nil {
			b.Error(err)
		}
	})
	w := newWorldOn(b, backend)
	w.api.Audit = slog.New(slog.NewJSONHandler(io.Discard, nil))
	w.api.Defaults = defaults(benchDefaults())
	w.register("")
	server := httptest.NewTLSServer(w.front)
	b.Cleanup(server.Close)
	const nodes, clients = 500, 64
	client := server.Client()
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = clients
	var next atomic.Int64
	put := func(n int64) {
		body := strings.NewReader(strings.Replace(withManaged, "prod", fmt.Sprint("v", n), 1))
		url := server.URL + nodeURL(fmt.Sprint("n", n%nodes))
		request := must(http.NewRequestWithContext(b.Context(), http.MethodPut, url, body))
		request.Header.Set("Content-Type", "application/json")
		response := must(client.Do(request))
		text := readAll(response.Body)
		response.Body.Close()
		if response.StatusCode/100 != 2 {
			b.Errorf("status %d: %s", response.StatusCode, text)
		}
	}
	flood := func(until int64) {
		var running sync.WaitGroup
		for range clients {
			running.Go(func() {
				for n := next.Add(1); n <= until && !b.Failed(); n = next.Add(1) {
					put(n)
				}
			})
		}
		running.Wait()
		next.Store(until)
	}
	flood(flexnode.Kept * nodes)
	w.caughtUp()
	began := processorTime(b)
	b.ResetTimer()
	flood(next.Load() + int64(b.N))
	b.StopTimer()
	took := processorTime(b) - began
	b.ReportMetric(float64(took.Microseconds())/float64(b.N), "cpu-us/op")
}

// withManaged is a common node.
const withManaged = `{"properties":{"continuousMonitoring":true,
  "azureAuth":{"method":"managedIdentity",
    "managedIdentity":{"clientId":"aaaaaaaa-0000-0000-0000-000000000001"}},
  "kubernetesAuth":{"useAzureAuth":true},
  "nodeConfig":{"maxPods":50,"labels":{"environment":"prod","site":"factory-7"}}}}`

// benchDefaults returns the defaults of an operator with a mirror.
func benchDefaults() map[string]any {
	overrides := map[string]any{}
	for _, name := range []string{
		"kubelet", "kubectl", "kubeadm", "containerd", "runc", "cni-plugins",
		"node-problem-detector",
	} {
		overrides[name] = map[string]any{"sha256": strings.Repeat("ab", 32), "size": 1 << 20}
	}
	return map[string]any{"artifacts": map[string]any{
		"mirror": "https://mirror.example", "overrides": overrides}}
}

// processorTime returns the processor time that this process has used.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	must(0, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
