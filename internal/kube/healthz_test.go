package kube

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealthz(t *testing.T) {
	ill := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if ill {
			http.Error(w, "[-]syncloop failed\nhealthz check failed", 500)
		}
	}))
	defer server.Close()
	err := Healthz(t.Context(), server.URL+"/healthz")
	if err == nil || !strings.Contains(err.Error(), "[-]syncloop failed healthz check failed") {
		t.Errorf("a kubelet that is ill: %v", err)
	}
	ill = false
	if err := Healthz(t.Context(), server.URL+"/healthz"); err != nil {
		t.Errorf("a kubelet that is well: %v", err)
	}
	server.Close()
	if err := Healthz(t.Context(), server.URL); err == nil {
		t.Error("a kubelet that is down is healthy")
	}
	if err := Healthz(t.Context(), "http://%zz"); err == nil {
		t.Error("a bad URL is healthy")
	}
}
