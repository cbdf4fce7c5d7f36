package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
)

// SocketFile is where the running service tells what it does. Only root can connect to it.
const SocketFile = saved.RunDir + "/agent.sock"

// Tell answers at the socket until ctx ends: /work is the Work as JSON, /metrics the metrics.
func (a *Agent) Tell(ctx context.Context) error {
	socket := a.path(SocketFile)
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the socket of before: %w", err)
	}
	listener, err := net.Listen("unix", socket) // in a directory of mode 0700
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	server := answer(listener, func(path string) (kind string, body []byte) {
		if path != "/work" {
			return a.Live.metricsAt(path)
		}
		body, err := json.Marshal(a.work())
		if err != nil {
			return "", nil
		}
		return "application/json", body
	})
	defer server.close()
	if err := os.Chmod(socket, 0o600); err != nil {
		return fmt.Errorf("cannot protect %s: %w", socket, err)
	}
	<-ctx.Done()
	return nil
}

// work is what this service does now.
func (a *Agent) work() Work {
	work := a.Live.Work()
	if work.Polls != nil {
		work.Polls.Received = a.records().BundleResource().ConfigVersion
		work.Polls.Applied = a.appliedResource().ConfigVersion
	}
	return work
}

// askFor is how long the service may take to say what it does.
const askFor = 2 * time.Second

// working asks the running service what it does; nil when none runs.
func (a *Agent) working(ctx context.Context) *Work {
	socket := a.path(SocketFile)
	if _, err := os.Stat(socket); err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	transport := &http.Transport{DialContext: dial}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/work", nil)
	if err != nil {
		return nil
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var w Work
	if json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&w) != nil {
		return nil
	}
	return &w
}
