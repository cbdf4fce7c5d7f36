package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
)

// Tell answers at the socket until ctx ends: /work is the Work as JSON, /metrics the metrics.
func (l *Live) Tell(ctx context.Context, a *change.Agent) error {
	socket := a.Path(inspect.SocketFile)
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the socket of before: %w", err)
	}
	listener, err := net.Listen("unix", socket) // in a directory of mode 0700
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	server := answer(listener, func(path string) (kind string, body []byte) {
		if path != "/work" {
			return l.metricsAt(path)
		}
		body, err := json.Marshal(l.report(a))
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
func (l *Live) report(a *change.Agent) inspect.Work {
	work := l.Work()
	if work.Polls != nil {
		work.Polls.Received = a.Records().BundleResource().ConfigVersion
		work.Polls.Applied = inspect.AppliedResource(&a.Env).ConfigVersion
	}
	return work
}
