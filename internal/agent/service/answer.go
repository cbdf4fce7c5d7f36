package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/follow"
)

// The bounds of a request: how long it and its answer may take, and how many bytes its header has.
const (
	answerWithin = 5 * time.Second
	maxHeader    = 8 << 10
)

// answer answers GET requests on a listener, until the server is closed. at returns what is at a
// path; no kind is nothing.
func answer(l net.Listener, at func(path string) (kind string, body []byte)) *http.Server {
	server := &http.Server{
		ReadTimeout: answerWithin, WriteTimeout: answerWithin, MaxHeaderBytes: maxHeader,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			kind, body := at(r.URL.Path)
			switch {
			case r.Method != http.MethodGet:
				w.WriteHeader(http.StatusMethodNotAllowed)
			case kind == "":
				w.WriteHeader(http.StatusNotFound)
			default:
				w.Header().Set("Content-Type", kind)
				_, _ = w.Write(body) // a client that has gone misses the answer
			}
		}),
	}
	server.SetKeepAlivesEnabled(false)
	go func() { _ = server.Serve(l) }() // ends with Close
	return server
}

// Tell answers at the socket until ctx ends: /work is the Work as JSON, /metrics the metrics.
func (l *Live) Tell(ctx context.Context, a *change.Agent) error {
	socket := a.Path(inspect.SocketFile)
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the old socket: %w", err)
	}
	listener, err := net.Listen("unix", socket) // in a directory of mode 0700
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	server := answer(listener, func(path string) (kind string, body []byte) {
		if path != "/work" {
			return l.metricsAt(path)
		}
		work := l.Work()
		if work.Polls != nil {
			polls := *work.Polls
			polls.Received = a.Records().BundleResource().ConfigVersion
			polls.Applied = inspect.AppliedResource(&a.Env).ConfigVersion
			if bundle, err := a.Records().Bundle(); err == nil && bundle != nil {
				proof, _, _ := follow.Verify(bundle, config.JoiningOf(bundle).Root)
				polls.Signed, polls.Certified = proof.Signed, proof.Until
			}
			work.Polls = &polls
		}
		body, err := json.Marshal(work)
		if err != nil {
			return "", nil
		}
		return "application/json", body
	})
	defer server.Close()
	if err := os.Chmod(socket, 0o600); err != nil {
		return fmt.Errorf("cannot protect %s: %w", socket, err)
	}
	<-ctx.Done()
	return nil
}
