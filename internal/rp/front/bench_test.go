package front

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// BenchmarkPoll is an agent's poll of an unchanged node, without TLS and connection.
func BenchmarkPoll(b *testing.B) {
	w := newWorld(b)
	w.register("")
	r, _ := w.must(201, "PUT", nodeURL("n"), withToken)
	w.caughtUp()
	request := httptest.NewRequest(http.MethodGet, publicURL+nodeURL("n"), nil)
	request.Header.Set("If-None-Match", r.Header.Get("ETag"))
	b.ReportAllocs()
	for b.Loop() {
		recorder := httptest.NewRecorder()
		w.front.ServeHTTP(recorder, request)
		if recorder.Code != http.StatusNotModified {
			b.Fatal(recorder.Code)
		}
	}
}

// BenchmarkPut is a PUT that makes a node, and one that changes or leaves it, without TLS,
// connection and database.
func BenchmarkPut(b *testing.B) {
	body := func(_ int) string { return withPrincipal }
	b.Run("new", func(b *testing.B) { benchmarkPut(b, 201, "n%d", body) })
	b.Run("equal", func(b *testing.B) { benchmarkPut(b, 200, "n", body) })
	b.Run("changed", func(b *testing.B) {
		benchmarkPut(b, 200, "n", func(i int) string {
			return strings.Replace(withoutSecret, "prod", fmt.Sprint("v", i), 1)
		})
	})
}

func benchmarkPut(b *testing.B, status int, name string, body func(int) string) {
	w := newWorld(b)
	w.register("")
	w.must(201, "PUT", nodeURL("n"), withPrincipal)
	w.caughtUp()
	w.api.Audit = slog.New(slog.DiscardHandler)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		url := nodeURL(name)
		if strings.Contains(name, "%") {
			url = nodeURL(fmt.Sprintf(name, i))
		}
		request := httptest.NewRequest(http.MethodPut, publicURL+url, strings.NewReader(body(i)))
		request.Header.Set("Content-Type", "application/json")
		recorder := httptest.NewRecorder()
		w.front.ServeHTTP(recorder, request)
		if recorder.Code != status {
			b.Fatalf("status %d: %s", recorder.Code, recorder.Body)
		}
	}
}
