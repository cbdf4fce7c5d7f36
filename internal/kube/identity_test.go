package kube

import (
	"errors"
	"io"
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
)

func review(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		answer(w, authenticationv1.SelfSubjectReview{
			Status: authenticationv1.SelfSubjectReviewStatus{
				UserInfo: authenticationv1.UserInfo{Username: name},
			},
		})
	}
}

func TestWhoAmI(t *testing.T) {
	const who = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews"
	type answers = map[string]http.HandlerFunc
	tests := []struct {
		name         string
		answers      answers
		user         string
		unauthorized bool
		fails        bool
	}{
		{name: "a node", answers: answers{who: review("system:node:x")}, user: "system:node:x"},
		{name: "nobody", answers: answers{who: review("system:anonymous")}, unauthorized: true},
		{name: "refused", answers: answers{who: status(401)}, unauthorized: true},
		{name: "recognised and forbidden", answers: answers{who: status(403)}},
		{name: "ill", answers: answers{who: status(500)}, fails: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			user, err := client(t, tt.answers).WhoAmI(t.Context())
			if user != tt.user || errors.Is(err, ErrUnauthorized) != tt.unauthorized ||
				(err != nil) != (tt.fails || tt.unauthorized) {
				t.Errorf("WhoAmI: %q, %v", user, err)
			}
		})
	}
}
