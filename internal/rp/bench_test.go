package rp

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkPoll is an agent's poll of an unchanged node, without TLS and connection.
func BenchmarkPoll(b *testing.B) {
	w := newWorld(b)
	w.register("")
	r, _ := w.must(201, "PUT", nodeURL("n"), withToken)
	w.settled()
	request := httptest.NewRequest(http.MethodGet, "https://provider.example"+nodeURL("n"), nil)
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
