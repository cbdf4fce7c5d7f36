package kube

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answer writes an object of the API.
func answer[T any](w http.ResponseWriter, object T) {
	body, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	kind := reflect.TypeOf(object).Name()
	version := map[string]string{
		"Status": "v1", "PodList": "v1", "Node": "v1", "Service": "v1",
		"Lease": "coordination.k8s.io/v1", "SelfSubjectReview": "authentication.k8s.io/v1",
		"SelfSubjectAccessReview":       "authorization.k8s.io/v1",
		"CertificateSigningRequestList": "certificates.k8s.io/v1",
	}[kind]
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"kind":"`+kind+`","apiVersion":"`+version+`",`+string(body[1:]))
}

// refuse writes an error of the API.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	answer(w, metav1.Status{
		Status: metav1.StatusFailure, Reason: reason, Code: int32(code), Message: message,
	})
}

// client is a client of an API server that answers "METHOD /path" so; anything else is not found.
func client(t *testing.T, answers map[string]http.HandlerFunc) *Client {
	t.Helper()
	server, ca := api(t, func(w http.ResponseWriter, r *http.Request) {
		h, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.Path+" not found")
			return
		}
		h(w, r)
	})
	c, err := FromToken(server.URL, ca, secret, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) }
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, code, metav1.StatusReasonUnknown, "refused")
	}
}

func TestServerVersion(t *testing.T) {
	tests := map[string]string{ // gitVersion to version, "" for an error
		"v1.34.4": "1.34.4", "v1.34.4-aks": "1.34.4", "v1.33.1-gke.100": "1.33.1",
		"v1.35.0+k3s1": "1.35.0", "1.30.2": "1.30.2", "": "", "latest": "",
	}
	for git, want := range tests {
		got, err := client(t, map[string]http.HandlerFunc{
			"GET /version": text(`{"gitVersion": "` + git + `"}`),
		}).ServerVersion(t.Context())
		if got != want || (err == nil) != (want != "") {
			t.Errorf("version of %q is %q, %v; want %q", git, got, err, want)
		}
	}
	page := client(t, map[string]http.HandlerFunc{"GET /version": text("<html>")})
	if _, err := page.ServerVersion(t.Context()); err == nil {
		t.Error("a web page has a version")
	}
	if _, err := client(t, nil).ServerVersion(t.Context()); err == nil {
		t.Error("404 has a version")
	}
}

func TestClusterUID(t *testing.T) {
	const path = "GET /api/v1/namespaces/default/services/kubernetes"
	c := client(t, map[string]http.HandlerFunc{path: func(w http.ResponseWriter, _ *http.Request) {
		answer(w, corev1.Service{ObjectMeta: metav1.ObjectMeta{UID: "0b1c"}})
	}})
	if uid, err := c.ClusterUID(t.Context()); uid != "0b1c" || err != nil {
		t.Errorf("uid is %q, %v", uid, err)
	}
	if _, err := client(t, nil).ClusterUID(t.Context()); err == nil {
		t.Error("no Service is no error")
	}
}

func TestLease(t *testing.T) {
	const path = "GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/edge-1"
	holder := "edge-1"
	c := client(t, map[string]http.HandlerFunc{
		path: func(w http.ResponseWriter, _ *http.Request) {
			answer(w, coordinationv1.Lease{
				Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder},
			})
		},
	})
	l, err := c.Lease(t.Context(), "edge-1")
	if err != nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != "edge-1" {
		t.Errorf("lease is %v, %v", l, err)
	}
	if _, err := client(t, nil).Lease(t.Context(), "edge-1"); !NodeMissing(err) {
		t.Errorf("a lease that is not there: %v", err)
	}
}

func TestMay(t *testing.T) {
	const path = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	c := client(t, map[string]http.HandlerFunc{path: func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"verb":"create"`) {
			t.Errorf("asked with %s", body)
		}
		answer(w, authorizationv1.SelfSubjectAccessReview{
			Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "RBAC"},
		})
	}})
	ok, reason, err := c.May(t.Context(), Access{Verb: "create", Resource: "nodes"})
	if !ok || reason != "RBAC" || err != nil {
		t.Errorf("May: %v, %q, %v", ok, reason, err)
	}
	if _, _, err := client(t, nil).May(t.Context(), Access{}); err == nil {
		t.Error("404 is no error")
	}
}

func TestFromToken(t *testing.T) {
	if _, err := FromToken("https://x", []byte("no PEM"), secret, Options{}); err == nil {
		t.Error("a CA that is no PEM is no error")
	}
	if _, err := FromToken("https://x:port/%zz", nil, secret, Options{}); err == nil {
		t.Error("a server that is no URL is no error")
	}
}

func TestTaintOf(t *testing.T) {
	tests := map[string]corev1.Taint{
		"a=b:NoSchedule": {Key: "a", Value: "b", Effect: corev1.TaintEffectNoSchedule},
		"a:NoExecute":    {Key: "a", Effect: corev1.TaintEffectNoExecute},
	}
	for text, want := range tests {
		if got := TaintOf(text); got != want {
			t.Errorf("%s is %v", text, got)
		}
	}
}
