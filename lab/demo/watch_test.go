package demo

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A kubelet that never responds, or stops responding, counts as down.
func TestWatchWithoutAnswers(t *testing.T) {
	for name, answered := range map[string]int{"never": 0, "no more": 2} {
		t.Run(name, func(t *testing.T) {
			asked, enough := 0, make(chan time.Time)
			var last time.Time
			server := httptest.NewServer(http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) {
					if asked++; asked == answered+5 {
						enough <- last
					}
					if asked > answered {
						w.WriteHeader(http.StatusUnauthorized)
						return
					}
					_, _ = w.Write([]byte("ok")) // the test notices if this fails
					last = time.Now()
				}))
			defer server.Close()
			ctx, end := context.WithCancel(t.Context())
			w := &watch{
				client: server.Client(), url: server.URL, end: end, ended: make(chan struct{}),
			}
			last = time.Now()
			go w.run(ctx)
			since := <-enough
			least := time.Since(since).Seconds() / 2
			if down := w.stop(); down < least {
				t.Errorf("it was down for %f s, and at least %f s", down, least)
			}
		})
	}
}
