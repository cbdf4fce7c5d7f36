package service

import (
	"net/http"
	"sync/atomic"
)

// leave has clients end their connections while the replica drains: their next requests go to
// another one.
func (s *service) leave(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&leaving{w, &s.health.draining}, r)
	})
}

// leaving is an answer that is the last of its connection if the replica drains when it is written.
// With HTTP/2 it is net/http that makes GOAWAY of the header.
type leaving struct {
	http.ResponseWriter
	draining *atomic.Bool
}

// WriteHeader implements http.ResponseWriter.
func (l *leaving) WriteHeader(status int) {
	l.close()
	l.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (l *leaving) Write(b []byte) (int, error) {
	l.close()
	return l.ResponseWriter.Write(b)
}

func (l *leaving) close() {
	if l.draining.Load() {
		l.Header().Set("Connection", "close")
	}
}

// Unwrap is for http.ResponseController.
func (l *leaving) Unwrap() http.ResponseWriter { return l.ResponseWriter }
