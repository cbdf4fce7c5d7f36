package service

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/api/flexnode/agentapi"
	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/follow"
)

// roundTrip answers requests without a network.
type roundTrip func(r *http.Request) int

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.WriteHeader(f(r))
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// A diagnosis that the provider does not take now is delivered again, one that it never takes not.
func TestDiagnosisIsTaken(t *testing.T) {
	for status, want := range map[int]int{
		204: 1, 429: 2, 401: 2, 408: 2, 503: 2, 400: 1, 409: 1, 413: 1,
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			provider := roundTrip(func(*http.Request) int {
				if asked++; asked == 1 {
					return status
				}
				return http.StatusNoContent
			})
			f := &Following{
				Resource: &follow.Resource{Endpoint: "https://provider.example", ID: "/x",
					Client: &http.Client{Transport: provider},
					Token:  func(context.Context) (string, error) { return "t", nil }},
				Diagnose: func(context.Context, string) (d agentapi.Diagnosed) { return d },
				agent:    &change.Agent{Env: inspect.Env{Log: slog.New(slog.DiscardHandler)}},
			}
			f.questions = make(chan follow.Answer, 1)
			ctx, stop := context.WithCancel(t.Context())
			go f.diagnose(ctx)
			for range 5 { // each poll asks again
				tell(f.questions, follow.Answer{Diagnose: "id", Kind: agentapi.Doctor})
				time.Sleep(2 * diagnosePause)
			}
			stop()
			synctest.Wait()
			if asked != want {
				t.Errorf("with %d it is delivered %d times, not %d", status, asked, want)
			}
		})
	}
}
